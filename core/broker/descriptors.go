package broker

// clientDescriptors returns how many of so many file descriptors clients may have; the others are for logs and other nodes. 0 = all.
func clientDescriptors(limit int) int {
	const least, most = 32, 1024
	return max(0, limit-min(max(limit/16, least), most))
}

// operatorDescriptors is clientDescriptors for the management API, health checks and metrics: a broker whose clients have all of theirs has
// to be looked at.
func operatorDescriptors(limit int) int {
	clients := clientDescriptors(limit)
	if clients == 0 {
		return 0
	}
	return clients + (limit-clients)/4
}
