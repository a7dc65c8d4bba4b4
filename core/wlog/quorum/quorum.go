// Package quorum keeps each shard's log on a majority of the nodes of a cluster, with etcd's implementation of Raft.
//
// The package has no consensus of its own. A group is one node's replica of a shard, and a disk is the replica's copy in a local log of
// another engine. Neither has goroutines or a clock, so that a test can run a whole cluster in one goroutine, with disks that lose power
// and a network that loses, repeats and reorders messages.
package quorum
