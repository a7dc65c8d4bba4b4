package mgmt

import (
	"net/url"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
)

// Some clients name a binding by its properties_key, escaped for the path, others by its routing key. RabbitMQ 3.10.8 gave the
// same answers.
func TestBindingIsNamedByEitherKey(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/queues/%2F/q", `{}`)
	const path = "/api/bindings/%2F/e/amq.topic/q/q"
	for _, key := range []string{"a.#", "*.b", "a b", "a/b", "ä", "€", "ab.c", "a%b", "100%", "%zz", "a&b=c;d?e", `a"b'`, "{}[]<>|\\^`!$(),:@"} {
		for _, args := range []amqp.Table{nil, {{Key: "x", Value: "y"}}} {
			bound := binding{Binding: vhost.Binding{Key: key, Args: args}}
			properties := bound.PropertiesKey()
			hash := properties[len(url.QueryEscape(key)):]
			for _, name := range []string{properties, url.PathEscape(properties), url.PathEscape(key + hash)} {
				body := object{{"routing_key", key}, {"arguments", jsonobj.OfTable(args)}}
				r.do(201, "POST", path, string(body.Append(nil)))
				r.do(200, "GET", path+"/"+name, "")
				r.do(204, "DELETE", path+"/"+name, "")
				r.do(404, "DELETE", path+"/"+name, "")
			}
		}
	}
}

// Ansible's rabbitmq_binding escapes a routing key except for its slashes. It took the 404 for a binding that is not there, reported
// a change with each run, and deleted nothing. (RabbitMQ 3.10.8 answers 400, and the module fails.)
func TestBindingIsNamedByAKeyWithSlashes(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/queues/%2F/q", `{}`)
	const path = "/api/bindings/%2F/e/amq.topic/q/q"
	for _, tt := range []struct{ key, name string }{{"a/b", "a/b"}, {"a/b/ä c", "a/b/%C3%A4%20c"}, {"/a//b", "/a//b"}, {"a/*.#", "a/%2A.%23"}, {"a/", "a/"}} {
		body := object{{"routing_key", tt.key}}
		r.do(404, "GET", path+"/"+tt.name, "")
		r.do(201, "POST", path, string(body.Append(nil)))
		if got := r.do(200, "GET", path+"/"+tt.name, ""); !strings.Contains(got, `"routing_key":"`+tt.key+`"`) {
			t.Errorf("%s: got %s", tt.name, got)
		}
		r.do(204, "DELETE", path+"/"+tt.name, "")
		r.do(404, "DELETE", path+"/"+tt.name, "")
	}
	r.do(201, "POST", path, `{"routing_key":"a"}`)
	r.do(404, "DELETE", path+"/a/", "") // it deleted the binding with the key a
	r.do(200, "GET", path+"/a", "")
	r.do(200, "GET", path+"/", "")
}

// A client that names a binding by its properties_key must never meet another binding, whatever the other's routing key is.
func TestPropertiesKeyNamesOneBinding(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/queues/%2F/q", `{}`)
	const path = "/api/bindings/%2F/e/amq.topic/q/q"
	for _, pair := range []struct{ bound, named string }{
		{"a+b", "a b"}, {"a b", "a+b"}, {"a%2Fb", "a/b"}, {"a~b", "a"}, {"a%252Fb", "a%2Fb"}, {"~", ""}, {"a~", "a"}, {"a", "a~"},
	} {
		body := object{{"routing_key", pair.bound}}
		r.do(201, "POST", path, string(body.Append(nil)))
		r.do(404, "DELETE", path+"/"+url.PathEscape(propertiesKey(pair.named)), "")
		r.do(204, "DELETE", path+"/"+url.PathEscape(propertiesKey(pair.bound)), "")
	}
}

func propertiesKey(key string) string {
	return (&binding{Binding: vhost.Binding{Key: key}}).PropertiesKey()
}

func FuzzPropertiesKey(f *testing.F) {
	for _, key := range []string{"", "~", "a+b %", "%%4", "%4", "ä~\x00"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if k := propertiesKey(key); definitions.PropertiesKeyOf(k) != k {
			t.Errorf("%q names the binding with %q, not itself", k, definitions.PropertiesKeyOf(k))
		}
	})
}
