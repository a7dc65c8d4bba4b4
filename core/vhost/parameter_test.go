package vhost

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestParameters(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	for _, created := range []bool{true, false} {
		got, err := v.Parameters().Set(Parameter{"shovel", "s", []byte(` { "src-uri" : "amqp://" } `)})
		must(t, err)
		if got != created {
			t.Errorf("created: got %t", got)
		}
	}
	must(t, v.setParameter("federation", "f", "[1, null]"))
	must(t, v.setParameter("federation", "e", `"x"`))
	all := []Parameter{
		{"federation", "e", []byte(`"x"`)}, {"federation", "f", []byte(`[1,null]`)}, {"shovel", "s", []byte(`{"src-uri":"amqp://"}`)},
	}
	for _, v := range []*VHost{v, k.restart(t)} {
		if got := v.Parameters().All(); !reflect.DeepEqual(got, all) {
			t.Errorf("got %s", got)
		}
	}
	for _, existed := range []bool{true, false} {
		got, err := v.Parameters().Clear("federation", "f")
		must(t, err)
		if got != existed {
			t.Errorf("existed: got %t", got)
		}
	}
	if value, ok := k.restart(t).Parameters().Get("federation", "f"); ok {
		t.Errorf("after a restart there is %s", value)
	}
	if value, ok := v.Parameters().Get("shovel", "s"); !ok || string(value) != `{"src-uri":"amqp://"}` {
		t.Errorf("got %s, %t", value, ok)
	}
}

func TestWrongParameters(t *testing.T) {
	v, _ := newVHost(t)
	long := strings.Repeat("x", 256)
	for _, c := range []struct{ component, name, value, text string }{
		{"c", "n", "", "parameter 'n' of component 'c': value is not JSON"},
		{"c", "n", "{} {}", "parameter 'n' of component 'c': value is not JSON"},
		{"c", "n", "\"\xff\"", "parameter 'n' of component 'c': value is not JSON"},
		{"c", "n", `"` + strings.Repeat(long, 256) + `"`, "parameter 'n' of component 'c': value of 65538 bytes: at most 65536 are allowed"},
		{"", "n", "1", "parameter 'n' of component '': a name is UTF-8 of 1 to 255 bytes"},
		{"c", long, "1", "parameter '" + long + "' of component 'c': a name is UTF-8 of 1 to 255 bytes"},
		{"policy", "n", "{}", "component 'policy': policies are no parameters here"},
		{"operator_policy", "n", "{}", "component 'operator_policy': policies are no parameters here"},
		{"vhost-limits", "n", "{}", "component 'vhost-limits': the only parameter is 'limits'"},
		{"vhost-limits", "limits", "[]", "Validation failed\n\nlimits should be an object, actually were []\n"},
		{"vhost-limits", "limits", `{"max-queues":"x"}`, "Validation failed\n\nmax-queues should be a number, actually was <<\"x\">>\n"},
		{"vhost-limits", "limits", `{"max-queues":1.5}`, "Validation failed\n\nmax-queues should be a number, actually was 1.5\n"},
		{"vhost-limits", "limits", `{"max-connections":null}`, "Validation failed\n\nmax-connections should be a number, actually was null\n"},
		{"vhost-limits", "limits", `{"max-foo":-1,"max-bar":"x"}`, "Validation failed\n\nUnrecognised terms [{<<\"max-bar\">>,<<\"x\">>},{<<\"max-foo\">>,-1}] in limits\n"},
		{"vhost-limits", "limits", `{"max-queues":2147483648}`, "max-queues of 2147483648: at most 2147483647 is allowed"},
	} {
		want(t, v.setParameter(c.component, c.name, c.value), Precondition, c.text)
	}
	for i := range maxParameters {
		must(t, v.setParameter("c", strconv.Itoa(i), "1"))
	}
	must(t, v.setParameter("c", "0", "2"))
	want(t, v.setParameter("c", "x", "1"), Precondition, "there are 10000 parameters in vhost '/': at most 10000 are allowed")
}

func TestQueueLimit(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	declare := func(name string, durable bool) error {
		_, err := v.DeclareQueue(QueueDeclare{Name: name, Durable: durable})
		return err
	}
	must(t, declare("a", true))
	must(t, v.Parameters().SetLimits(Limits{Queues: hook.LimitOf(2)}))
	must(t, declare("b", false))
	for _, durable := range []bool{true, false} {
		want(t, declare("c", durable), Precondition, "cannot declare queue 'c': queue limit in vhost '/' (2) is reached")
	}
	must(t, declare("a", true))
	must(t, declare("b", false))
	_, err := v.DeleteQueue("a", 0, false, false)
	must(t, err)
	must(t, declare("c", true))

	if got := k.restart(t).Parameters().Limits(); got != v.Parameters().Limits() || !got.Queues.Set() || got.Connections.Set() {
		t.Errorf("after a restart: %v", got)
	}
	must(t, v.setParameter("vhost-limits", "limits", `{"max-queues":-1,"max-connections":7}`))
	must(t, declare("d", true))
	if got := fmt.Sprintf("%s", v.Parameters().All()); got != `[{vhost-limits limits {"max-queues":-1,"max-connections":7}}]` {
		t.Errorf("got %s", got)
	}
	must(t, v.Parameters().SetLimits(Limits{}))
	if len(v.Parameters().All()) > 0 || v.Parameters().Limits() != (Limits{}) || k.restart(t).Parameters().Limits() != (Limits{}) {
		t.Error("there are limits")
	}
}

// Any value of a parameter is either restored or refused.
func FuzzSetParameter(f *testing.F) {
	f.Add("c", "n", `{"a": [1, 2.5e3, "\u0000"]}`)
	f.Add("vhost-limits", "limits", `{"max-queues": 1, "max-connections": -1}`)
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, component, name, value string) {
		k := &memoryLog{}
		v, _ := newVHostWith(t, k)
		if v.setParameter(component, name, value) != nil {
			return
		}
		again := k.restart(t)
		if got, want := again.Parameters().All(), v.Parameters().All(); !reflect.DeepEqual(got, want) || again.Parameters().Limits() != v.Parameters().Limits() {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// A policymaker could fill the memory with parameters that have no effect: 10,000 of 64 KiB in each vhost.
func TestParametersHaveASize(t *testing.T) {
	v, _ := newVHost(t)
	value := `"` + strings.Repeat("x", maxParameter-2) + `"`
	n := 0
	for v.setParameter("shovel", strconv.Itoa(n), value) == nil {
		if n++; n > MaxParameters/maxParameter {
			t.Fatalf("%d parameters of %d bytes fit", n, maxParameter)
		}
	}
	want(t, v.setParameter("shovel", "x", value), Precondition, "the parameters in vhost '/' have more than 16777216 bytes then")
	must(t, v.setParameter("shovel", "0", value)) // instead of another
	must(t, v.setParameter("shovel", "0", "1"))
	must(t, v.setParameter("shovel", "x", `"`+strings.Repeat("x", maxParameter/2)+`"`))
}
