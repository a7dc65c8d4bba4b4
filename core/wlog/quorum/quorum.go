// Package quorum keeps each shard's log on a majority of the nodes of a cluster, by the Raft of etcd.
//
// It has no consensus of its own. A group is one node's replica of a shard, and a disk is what it has written, in a local log of
// another engine: both do nothing by themselves, so that a whole cluster runs in one goroutine of a test, with disks that lose power
// and a network that loses, repeats and reorders.
package quorum
