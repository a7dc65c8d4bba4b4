package session

import "github.com/curfewmq/curfew/core/journal"

// Publishers wait for the disk because a queue's journal is a pacer. The type assertion that finds out does so at run time: a
// method of another name would switch back-pressure off without a word, as it once did.
var _ pacer = (*journal.Writer)(nil)
