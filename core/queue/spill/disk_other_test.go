//go:build !linux

package spill

import "io/fs"

// onDisk returns how many bytes of room a file takes.
func onDisk(info fs.FileInfo) int64 { return info.Size() }
