//go:build !wasip1

package policy

import "unsafe"

// Without a broker nothing is set, and output is discarded.

func hostLog(int32, string) {}

func hostLogEnabled(int32) int32 { return 0 }

func hostConfigInt(_ string, otherwise int64) int64 { return otherwise }

func hostConfigText(string, unsafe.Pointer, uint32) int32 { return absent }

func hostQueueInt(_ uint32, _ string, otherwise int64) int64 { return otherwise }

func hostQueueText(uint32, string, unsafe.Pointer, uint32) int32 { return absent }

func hostHeaderInt(_ uint32, _ string, otherwise int64) int64 { return otherwise }

func hostHeaderText(uint32, string, unsafe.Pointer, uint32) int32 { return absent }

func hostProperty(uint32, uint32, unsafe.Pointer, uint32) int32 { return absent }

func hostBody(uint32, uint32, unsafe.Pointer, uint32) int32 { return 0 }

func hostCount(string, int64) {}

func hostTrace(uint32, string, string) {}

func hostHold(uint32, int64) {}
