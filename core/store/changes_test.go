package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// says is everything that is durable of a store besides messages.
func (k *kept) says() string {
	var b strings.Builder
	for _, a := range k.Users().List() {
		hash, algorithm := a.Password.Encode()
		fmt.Fprintln(&b, "user", a.Name, a.Tags, hash, algorithm, a.Limits)
	}
	fmt.Fprintln(&b, k.Users().Grants(), k.Users().TopicGrants())
	fmt.Fprintf(&b, "%s\n", k.GlobalParameters())
	for _, v := range k.VHosts() {
		fmt.Fprintf(&b, "vhost %s %v %s %v", v.Name(), v.Metadata(), v.Parameters().All(), v.Parameters().Limits())
		for _, q := range v.Queues() {
			fmt.Fprint(&b, " ", q.Config().Name)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// change does something to a store, anything.
func (k *kept) change(r *rand.Rand) error {
	pick := func(n int) string { return string(rune('a' + r.IntN(n))) }
	user, name := pick(4), pick(3)
	users := k.Users()
	v, ok := k.VHost(name)
	if !ok || r.IntN(8) == 0 {
		_, err := k.AddVHost(name, vhost.Metadata{Description: pick(5), Tags: []string{pick(5)}})
		return err
	}
	var err error
	switch r.IntN(14) {
	case 0:
		_, err = k.DeleteVHost(name)
	case 1, 2:
		_, err = users.Set(auth.Account{Name: user, Tags: []string{pick(5)}, Limits: auth.Limits{Channels: hook.LimitOf(int64(r.IntN(9)))}})
	case 3:
		_, err = users.Delete(user)
	case 4:
		a, _ := users.Lookup(user)
		a.Name, a.Tags = user, []string{pick(9)}
		_, err = users.Set(a)
	case 5:
		_, err = users.SetPermissions(auth.Grant{User: user, VHost: name, Permissions: auth.Permissions{Read: pick(9)}})
	case 6:
		_, err = users.ClearPermissions(user, name)
	case 7:
		_, err = users.SetTopicPermissions(auth.TopicGrant{User: user, VHost: name, TopicPermissions: auth.TopicPermissions{Exchange: pick(3)}})
	case 8:
		_, err = users.ClearTopicPermissions(user, name, pick(3))
	case 9:
		_, err = v.Parameters().Set(vhost.Parameter{Component: pick(3), Name: pick(3), Value: []byte(`"` + strings.Repeat("x", r.IntN(50_000)) + `"`)})
	case 10:
		_, err = v.Parameters().Clear(pick(3), pick(3))
	case 11:
		err = v.Parameters().SetLimits(vhost.Limits{Connections: hook.LimitOf(int64(r.IntN(5) - 1))})
	case 12:
		_, err = k.SetGlobalParameter(pick(4), []byte(strconv.Itoa(r.IntN(100))))
	case 13:
		_, err = v.DeclareQueue(vhost.QueueDeclare{Name: pick(4), Durable: true})
	}
	return err
}

// refusal reports whether an error only says that what was to be changed is not there.
func refusal(err error) bool {
	_, refused := errors.AsType[*vhost.Error](err)
	return refused || errors.Is(err, auth.ErrNoUser) || errors.Is(err, auth.ErrNoVHost)
}

// Whatever was changed when the power goes, it is as it was.
func TestChangesSurvivePowerLoss(t *testing.T) {
	for seed := range uint64(8 / fewer) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
		disk := crashfs.New(seed)
		for range 6 {
			k := open(t, disk)
			for range r.IntN(80) {
				if err := k.change(r); err != nil && !refusal(err) {
					t.Fatal(err)
				}
			}
			before := k.says()
			disk = disk.LosePower()
			k.end()
			k = open(t, disk)
			if got := k.says(); got != before {
				t.Fatalf("seed %d:\n got %s\nwant %s", seed, got, before)
			}
			k.close()
		}
	}
}

// Changes from everywhere at once leave the same on the disk as in memory.
func TestChangesAtOnce(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a test that can be repeated
			for range 150 {
				if err := k.change(r); err != nil && !refusal(err) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	before := k.says()
	k.close()
	k = open(t, disk)
	if got := k.says(); got != before {
		t.Errorf("got %s\nwant %s", got, before)
	}
	k.close()
}
