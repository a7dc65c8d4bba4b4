package broker

// clientDescriptors returns how many of limit file descriptors clients may use; the others are for logs and other nodes. 0 = all.
func clientDescriptors(limit int) int {
	const least, most = 32, 1024
	return max(0, limit-min(max(limit/16, least), most))
}

// operatorDescriptors is clientDescriptors for the management API, health checks and metrics. It is higher, because operators must reach a
// broker whose clients have used up theirs.
func operatorDescriptors(limit int) int {
	clients := clientDescriptors(limit)
	if clients == 0 {
		return 0
	}
	return clients + (limit-clients)/4
}
