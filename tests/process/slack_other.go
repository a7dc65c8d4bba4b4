//go:build !linux

package process

import "os/exec"

func startRelaxed(cmd *exec.Cmd) error { return cmd.Start() }
