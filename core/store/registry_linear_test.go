package store

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// keyInput is what a client does with a key, and keyOutput what it learns.
type (
	keyInput struct {
		key  string
		does byte // + adds, - removes, ? looks
	}
	keyOutput struct{ was, unknown bool }
)

// keyModel is a set of names: whether each is there.
var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(keyInput).key
			byKey[key] = append(byKey[key], o)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return false },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(keyInput), output.(keyOutput)
		ok := out.unknown || out.was == state
		if in.does == '?' {
			return ok, state
		}
		return ok, in.does == '+'
	},
}

// history is what clients did at whatever node, and when.
type history struct {
	now atomic.Int64

	mu  sync.Mutex // guards all
	all []porcupine.Operation
}

// record records what became of something, unless nothing did.
func (h *history) record(client int, in keyInput, call int64, was bool, err error) {
	o := porcupine.Operation{ClientId: client, Input: in, Call: call, Output: keyOutput{was: was}, Return: h.now.Add(1)}
	if err != nil {
		if in.does == '?' || errors.Is(err, wlog.ErrNotOwner) {
			return
		}
		o.Output, o.Return = keyOutput{unknown: true}, math.MaxInt64 // it may still happen
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, o)
}

// useKey does something with a key at a node.
func useKey(ctx context.Context, r *Registry, in keyInput) (was bool, err error) {
	created := false
	user := in.key[0] == 'u'
	switch {
	case in.does == '+' && user:
		created, err = r.Users().Set(auth.Account{Name: in.key})
	case in.does == '+':
		_, created, err = r.Place(in.key, vhost.Metadata{}) //nolint:contextcheck // changes take none
	case in.does == '-' && user:
		return r.Users().Delete(in.key)
	case in.does == '-':
		return r.Unplace(in.key) //nolint:contextcheck // changes take none
	default:
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err = r.Fresh(ctx)
		_, created = r.Users().Lookup(in.key)
		return created || r.placed(in.key), err
	}
	return !created, err
}

// What clients learn at different nodes is what they would from one broker, although the owner of the registry changes.
func TestCampaignRegistryIsLinearizable(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 2, 4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			h := &history{}
			synctest.Test(t, func(t *testing.T) { playKeys(t, seed, h) })
			switch got := porcupine.CheckOperationsTimeout(keyModel, h.all, 20*time.Second); {
			case got == porcupine.Illegal:
				t.Error("no single broker would have answered so")
			case len(h.all) < 500:
				t.Errorf("only %d operations", len(h.all))
			default:
				t.Logf("%d operations: %s", len(h.all), got)
			}
		})
	}
}

func playKeys(t *testing.T, seed uint64, h *history) {
	t.Helper()
	g := newRegistryGame(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var playing sync.WaitGroup
	playing.Go(func() { g.disturb(ctx, rand.New(rand.NewPCG(seed, 100))) })
	for client := range 4 {
		r := rand.New(rand.NewPCG(seed, 101+uint64(client)))
		playing.Go(func() {
			for ctx.Err() == nil {
				in := keyInput{key: []string{"u1", "u2", "v1", "v2"}[r.IntN(4)], does: "++--??"[r.IntN(6)]}
				call := h.now.Add(1)
				was, err := useKey(ctx, g.registry(r.IntN(3)), in)
				h.record(client, in, call, was, err)
				time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
			}
		})
	}
	playing.Wait()
	closeAll(g.registries)
}
