// Command roots prints Mozilla's root certificates as PEM, for the container image. They come from a Go module, so that a commit has the
// same ones whatever the machine trusts that builds it.
package main

import (
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	for root := range bundle.Roots() {
		// Constraints on names or dates cannot be written as PEM: such a root would be trusted for more than Mozilla trusts it for.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			fmt.Fprintln(os.Stderr, "roots:", err)
			os.Exit(1)
		}
	}
}
