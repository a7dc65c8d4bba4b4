package mgmt

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// rehearsed is the scope of simulations: the owner of the vhost that the body names.
var rehearsed = together("the owner of the vhost in the body", nil, func(c *request, e *endpoint) error {
	b, err := c.read(min(maxModuleBody, c.api.BodyMax))
	if err != nil {
		return err
	}
	r := *c.r
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	c.r = &r
	limits := c.limits(jsonobj.MaxValues)
	if err := limits.Check(b); err != nil {
		return err
	}
	in := simulatedIn(b)
	if !c.api.knows(in) || !c.mayEnter(in) {
		return e.do(c) // which refuses it
	}
	return c.forwardToOwner(e, in)
})

// simulatedIn returns the vhost of a simulation, or some vhost if the body is refused.
func simulatedIn(body []byte) string {
	type place struct {
		VHost *string `json:"vhost"`
	}
	var s struct {
		Queue, Settings place
	}
	if json.Unmarshal(body, &s) == nil {
		for _, p := range []place{s.Queue, s.Settings} {
			if p.VHost != nil {
				return *p.VHost
			}
		}
	}
	return "/"
}
