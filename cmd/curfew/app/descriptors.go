package app

// clientDescriptors returns how many of so many file descriptors clients may have; the others are for logs and other nodes. 0 = all.
func clientDescriptors(limit int) int {
	const least, most = 32, 1024
	return max(0, limit-min(max(limit/16, least), most))
}
