package session

import "github.com/curfewmq/curfew/core/journal"

// Publishers wait for the disk because a queue's journal is a pacer, which a type assertion finds out at run time. If a method were renamed,
// back-pressure would be off without any error. This has happened.
var _ pacer = (*journal.Writer)(nil)
