package mgmt

import (
	"net/http"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
)

// index tells a person who looks what is here.
func (a *API) index(c *request) error {
	var b strings.Builder
	b.WriteString(a.Product + " " + a.Version + ", management HTTP API\n\nThe paths, shapes and status codes are RabbitMQ's. There are:\n\n")
	for _, r := range a.routes() {
		b.WriteString(root + r.path + "    " + r.allow() + "\n")
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = c.w.Write([]byte(b.String())) // the client may be gone; the server notices
	return nil
}

func (*API) whoami(c *request) error {
	return c.reply(object{{"name", c.user.Name}, {"tags", tagList(c.user.Tags)}})
}

// tagList is tags as a list that is never null.
func tagList(tags []string) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

// auth says that there is no other login than the one that was used.
func (*API) auth(c *request) error {
	return c.reply(object{{"enable_uaa", false}, {"oauth_enabled", false}, {"uaa_client_id", ""}, {"uaa_location", ""}})
}

// extensions lists none: there is no page that plugins could add to.
func (a *API) extensions(c *request) error { return a.nothing(c) }

func (*API) nothing(c *request) error {
	writeJSON(c.w, http.StatusOK, []byte("[]"))
	return nil
}

// features are what tools ask for before they use it, and what it means.
var features = [...][2]string{
	{"quorum_queue", "Support queues of type `quorum`"},
	{"user_limits", "Configure connection and channel limits for a user"},
	{"virtual_host_metadata", "Virtual host metadata (description, tags, etc)"},
}

// enableFeature has nothing to do: what there is, is enabled.
func (*API) enableFeature(c *request) error {
	for _, f := range features {
		if f[0] == c.vars["flag"] {
			return c.done()
		}
	}
	return badRequest("unsupported")
}

// featureFlags lists the features.
func (*API) featureFlags(c *request) error {
	var all []object
	for _, f := range features {
		all = append(all, object{
			{"name", f[0]}, {"desc", f[1]}, {"doc_url", ""}, {"state", "enabled"}, {"stability", "stable"}, {"provided_by", "curfew"},
		})
	}
	return list(c, listing[object]{items: all, object: itself, name: memberName})
}

// itself is for rows that are objects.
func itself(o object) object { return o }

// memberName is the name of rows that are objects.
func memberName(o object) string {
	v, _ := o.at("name")
	name, _ := v.(string)
	return name
}

const paramClusterName = "cluster_name"

func (a *API) clusterName(c *request) error { return c.reply(object{{"name", a.cluster()}}) }

// cluster is the name that was given to the broker, or else its node's.
func (a *API) cluster() string {
	if raw, ok := a.Store.GlobalParameter(paramClusterName); ok {
		if v, err := parseJSON(raw); err == nil {
			if name, ok := v.(string); ok {
				return name
			}
		}
	}
	return a.Node
}

func (a *API) setClusterName(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	if err := f.need("name"); err != nil {
		return err
	}
	name, err := f.name("name")
	if err != nil {
		return err
	}
	if _, err := a.Store.SetGlobalParameter(paramClusterName, appendString(nil, name)); err != nil {
		return err
	}
	return c.done()
}

// attempts counts logins by protocol, those over which there were any.
func (a *API) attempts(c *request) error {
	if err := a.isNode(c.vars["node"]); err != nil {
		return err
	}
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
	return list(c, listing[object]{items: all, object: itself})
}

// attemptSources lists nothing: logins are not counted by address, and failed ones are in the log.
func (a *API) attemptSources(c *request) error {
	if err := a.isNode(c.vars["node"]); err != nil {
		return err
	}
	return a.nothing(c)
}
