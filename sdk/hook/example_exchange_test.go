package hook_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// tenants offers the exchange type x-tenant: a message goes to the queue whose binding
// key is the value of a header.
type tenants struct{ hook.NoHooks } // it takes no part in queues

// ExchangeTypes implements [hook.ExchangeTyper].
func (tenants) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        "x-tenant",
		Description: "Routes by the tenant that a header names.",
		Arguments:   []hook.ExchangeArgument{{Name: "tenant-header", Check: checkHeader, Compared: true}},
		CheckBinding: func(_ *hook.Exchange, key string, _ hook.Args) error {
			if key == "" {
				return errors.New("the binding key is the name of a tenant, and must not be empty")
			}
			return nil
		},
		New: func(x *hook.Exchange) hook.Router {
			header := "tenant"
			if v, ok := x.Args.Lookup("tenant-header"); ok {
				header, _ = v.(string)
			}
			return &tenantRouter{header: header, queues: map[string][]hook.Destination{}}
		},
	}}
}

func checkHeader(_ *hook.Exchange, v any) error {
	if s, ok := v.(string); !ok || s == "" {
		return fmt.Errorf("invalid arg 'tenant-header': expected the name of a header, got %v", v)
	}
	return nil
}

// tenantRouter has the bindings of one exchange. It needs no lock: the broker never
// calls Bind or Unbind while Route runs.
type tenantRouter struct {
	header string
	queues map[string][]hook.Destination // by tenant
}

func (r *tenantRouter) Bind(b *hook.Binding) {
	// One queue may be bound twice with a key, with different arguments.
	r.queues[b.Key] = append(r.queues[b.Key], b.Destination)
}

func (r *tenantRouter) Unbind(b *hook.Binding) {
	all := r.queues[b.Key]
	i := slices.Index(all, b.Destination)
	if all = slices.Delete(all, i, i+1); len(all) > 0 {
		r.queues[b.Key] = all
		return
	}
	delete(r.queues, b.Key)
}

func (r *tenantRouter) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	tenant, _ := m.HeaderText(r.header)
	return append(dst, r.queues[string(tenant)]...) // allocates nothing
}

// An exchange type makes a Router for each exchange. The broker calls it for each binding and unbinding.
func ExampleExchangeTyper() {
	x, err := hooktest.Declare(tenants{}, hooktest.ExchangeSpec{Type: "x-tenant"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(x.Bind("red", "acme"), x.Bind("blue", "globex"))
	fmt.Println(x.Bind("green", ""))
	fmt.Println(x.Route(hooktest.Publish(1, "any key", hooktest.Content{Headers: map[string]any{"tenant": "acme"}})))
	fmt.Println(x.Route(hooktest.Publish(1, "any key", hooktest.Content{})))

	_, err = hooktest.Declare(tenants{}, hooktest.ExchangeSpec{Type: "x-tenant", Args: hook.Args{{Name: "tenant-header", Value: int32(5)}}})
	fmt.Println(err)
	// Output:
	// <nil> <nil>
	// the binding key is the name of a tenant, and must not be empty
	// [red] <nil>
	// [] <nil>
	// invalid arg 'tenant-header': expected the name of a header, got 5
}

// byName is a Router that sends all messages to the first of its destinations. After a
// restart bindings come in any order, so it sorts them.
type byName struct{ bound []hook.Binding }

func (r *byName) Bind(b *hook.Binding) {
	i, _ := slices.BinarySearchFunc(r.bound, *b, compare)
	r.bound = slices.Insert(r.bound, i, *b) // a copy: b is valid during the call only
}

func (r *byName) Unbind(b *hook.Binding) {
	i := slices.IndexFunc(r.bound, func(o hook.Binding) bool { return compare(o, *b) == 0 })
	r.bound = slices.Delete(r.bound, i, i+1)
}

func (r *byName) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if len(r.bound) == 0 {
		return dst
	}
	return append(dst, r.bound[0].Destination)
}

func compare(a, b hook.Binding) int {
	if a.Name == b.Name && a.ToExchange != b.ToExchange { // a queue and an exchange may have one name
		return cmp.Compare(kind(a), kind(b))
	}
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}

func kind(b hook.Binding) int {
	if b.ToExchange {
		return 1
	}
	return 0
}

// A Router that depends on the order of its destinations sorts them by name.
func ExampleRouter() {
	var r byName
	r.Bind(&hook.Binding{Destination: 0, Name: "second"})
	r.Bind(&hook.Binding{Destination: 1, Name: "first"})
	fmt.Println(r.Route(hooktest.Publish(1, "key", hooktest.Content{}), nil))
	r.Unbind(&hook.Binding{Destination: 1, Name: "first"})
	fmt.Println(r.Route(hooktest.Publish(1, "key", hooktest.Content{}), nil))
	// Output:
	// [1]
	// [0]
}
