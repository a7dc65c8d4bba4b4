//go:build !linux

package cluster

import (
	"errors"
	"testing"
)

// NewInNamespaces returns an error: only Linux has network namespaces.
func NewInNamespaces(*testing.T, string, string) (*Cluster, error) {
	return nil, errors.New("network namespaces are Linux's")
}
