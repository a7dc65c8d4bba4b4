package mgmt

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// index lists the paths for people.
func (a *API) index(c *request) error {
	var b strings.Builder
	b.WriteString(a.Product + " " + a.Version + ", management HTTP API\n\nThe paths, shapes and status codes are RabbitMQ's; (+) marks requests that it does not have. There are:\n\n")
	for _, r := range a.router.routes {
		for _, e := range r.endpoints {
			about := reference[e.method+" "+r.path]
			mark := ""
			if about.from == ours {
				mark = " (+)"
			}
			fmt.Fprintf(&b, "%-6s %s%s\n         %s\n", e.method, root+r.path, mark, about.does)
		}
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = c.w.Write([]byte(b.String())) // if the client is gone, the server notices
	return nil
}

func (*API) whoami(c *request) error {
	return c.reply(object{{"name", c.user.Name}, {"tags", definitions.Tags(c.user.Tags)}})
}

// auth says that the only way to log in is the one that the request used.
func (*API) auth(c *request) error {
	return c.reply(object{{"enable_uaa", false}, {"oauth_enabled", false}, {"uaa_client_id", ""}, {"uaa_location", ""}})
}

// nothing answers with an empty list, without pages: plugins cannot extend anything, logins are not counted by address, and no feature is
// deprecated.
func (*API) nothing(c *request) error {
	c.query = query{}
	return listObjects(c, nil)
}

// features are the feature flags that tools look for, with descriptions.
var features = [...][2]string{
	{"drop_unroutable_metric", "Count unroutable publishes to be dropped in stats"},
	{"empty_basic_get_metric", "Count AMQP `basic.get` on empty queues in stats"},
	{"implicit_default_bindings", "Bindings to the default exchange are implicit"},
	{"maintenance_mode_status", "Maintenance mode status"},
	{"quorum_queue", "Support queues of type `quorum`"},
	// Clients ask for it because at-least-once dead-lettering came to RabbitMQ with streams.
	{"stream_queue", "At-least-once dead-lettering; queues of type `stream` are not offered"},
	{"user_limits", "Configure connection and channel limits for a user"},
	{"virtual_host_metadata", "Virtual host metadata (description, tags, etc)"},
}

// enableFeature has nothing to do: all features are enabled.
func (*API) enableFeature(c *request) error {
	for _, f := range features {
		if f[0] == c.vars["flag"] {
			return c.done(nil)
		}
	}
	return badRequest("unsupported")
}

func (*API) featureFlags(c *request) error {
	var all []object
	for _, f := range features {
		all = append(all, object{
			{"name", f[0]}, {"desc", f[1]}, {"doc_url", ""}, {"state", "enabled"}, {"stability", "stable"}, {"provided_by", "curfew"},
		})
	}
	return listObjects(c, all)
}

const paramClusterName = "cluster_name"

func (a *API) clusterName(c *request) error { return c.reply(object{{"name", a.Cluster()}}) }

// Cluster returns the name that the broker was given or, if it has none, the one of its node; in a cluster, of the first node.
func (a *API) Cluster() string {
	if raw, ok := a.Store.GlobalParameter(paramClusterName); ok {
		if v, err := jsonobj.Parse(raw); err == nil {
			if name, ok := v.(string); ok {
				return name
			}
		}
	}
	if name := a.Store.Registry().Cluster(); name != "" {
		return name
	}
	return a.members()[0].Name
}

func (a *API) setClusterName(c *request) error {
	r := c.body()
	r.Need("name")
	name := r.Name("name")
	if err := r.Err(); err != nil {
		return err
	}
	_, err := a.Store.SetGlobalParameter(paramClusterName, jsonobj.Append(nil, name))
	return c.done(err)
}

// attempts counts logins by protocol. Protocols without any are left out.
func (a *API) attempts(c *request) error {
	sasl, basic := a.users().Attempts()
	var all []object
	for _, p := range [...]struct {
		name string
		auth.Attempts
	}{{"amqp091", sasl}, {"http", basic}} {
		if n := p.Succeeded + p.Failed; n > 0 {
			all = append(all, object{
				{"protocol", p.name}, {"auth_attempts", n}, {"auth_attempts_failed", p.Failed}, {"auth_attempts_succeeded", p.Succeeded},
			})
		}
	}
	return listObjects(c, all)
}
