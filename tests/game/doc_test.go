// Package game plays queues against a model of what clients are promised: one broker with all plugins but not its sockets, on a disk in
// memory that fills up and loses power, and one connection with a few channels. After each step the model looks into all queues as the
// management API does. It does not predict what happens; it fails unless what has changed follows from what was done: a message may only
// leave for a reason that was counted, nothing is early, late, overtaken, or delivered twice, and what was confirmed is there.
package game
