package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// Users, vhosts and global parameters are written anew when they get in the way, even if nobody touches them.
func TestRewrittenForSpace(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	_, err := k.SetGlobalParameter("first", []byte("1"))
	must(t, err)
	must(t, k.Users().SetTags(auth.Guest, []string{"monitoring"}))
	_, err = k.AddVHost("v", vhost.Metadata{Description: "d"})
	must(t, err)
	large := `"` + strings.Repeat("x", 60_000) + `"`
	for n := range 300 {
		_, err := k.v.SetParameter(vhost.Parameter{Component: "c", Name: "n", Value: []byte(large)})
		must(t, err)
		if n%10 == 0 {
			must(t, k.meta.Sync())
		}
	}
	if st := k.meta.Stats(); st.Bytes < 10<<20 || st.LogBytes > 4*worthwhile {
		t.Errorf("of %d bytes of definitions, %d are left", st.Bytes, st.LogBytes)
	}
	disk = disk.LosePower()
	k.end()
	k = open(t, disk)
	a, _ := k.Users().Lookup(auth.Guest)
	value, _ := k.GlobalParameter("first")
	if got := fmt.Sprint(a.Tags, string(value), k.in("v").v.Metadata().Description); got != "[monitoring]1d" {
		t.Errorf("got %s", got)
	}
	k.close()
}

// The front of the log goes to the disk in pieces: what is left of it begins anywhere, with a binding of a queue that is not
// known any more, say.
func TestFrontIsCutOff(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	arg := table("x", strings.Repeat("x", 50_000))
	for n := range 100 {
		name := strconv.Itoa(n)
		_, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true, Args: arg})
		must(t, err)
		for key := range 5 {
			must(t, k.v.Bind(vhost.Binding{Source: "amq.topic", Destination: name, Key: strconv.Itoa(key), Args: arg}, 0))
		}
		if n > 2 {
			_, err = k.v.DeleteQueue(strconv.Itoa(n-2), 0, false, false)
			must(t, err)
		}
		if n%7 == 0 {
			k.close()
			k = open(t, disk)
		}
	}
	if n := len(k.v.Bindings()); n != 5*len(k.v.Queues()) {
		t.Errorf("%d queues have %d bindings", len(k.v.Queues()), n)
	}
	k.close()
}
