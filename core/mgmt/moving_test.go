package mgmt

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Messages that are removed when they are fetched reach the client, also if the vhost moves before the last one is fetched. The answer was
// 503, and nobody got them.
func TestFetchFromAVHostThatMoves(t *testing.T) {
	for mode, want := range map[ackMode]int{ackDrop: 200, ackRequeue: 503, rejectDrop: 503} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t)
			r.api.EndStreams() // so that no request waits for a new owner
			r.do(201, "PUT", "/api/queues/%2F/q", `{"durable": true}`)
			for range 5 {
				r.send("q", 0)
			}
			v, _ := r.api.Store.VHost("/")
			lost, now := 0, r.api.Clock
			r.api.Clock = func() hook.Instant {
				left := 5
				_ = v.Mailbox("q").Look(func(q *queue.Queue) { s := q.Stats(); left = s.Ready })
				if left == 3 {
					lost = v.Move("it moves")
				}
				return now()
			}
			w := r.serve(r.request(guest, "POST", "/api/queues/%2F/q/get", fmt.Sprintf(`{"count": 5, "ackmode": %q, "encoding": "auto"}`, mode)))
			var got []json.RawMessage
			if want == 200 && w.Code == 200 {
				must(t, json.Unmarshal(w.Body.Bytes(), &got))
			}
			if w.Code != want || want == 200 && len(got)+lost != 5 {
				t.Errorf("got %d %s, and %d messages were in memory when the vhost moved", w.Code, w.Body, lost)
			}
		})
	}
}

// An answer after a wait for a new owner does not ask the client to try again, as answers did if there was no owner for a while.
func TestAnswerAfterAMove(t *testing.T) {
	c := newCluster(t)
	v, _ := c.rigs[1].api.Store.VHost("b")
	v.Move("it moves")
	asked := 0
	c.located = func(vhost string) {
		asked++
		switch asked {
		case 3:
			c.mu.Lock()
			c.owners["b"] = 0
			c.mu.Unlock()
		case 6:
			c.located = nil
			c.arrive("b", 2)
		}
	}
	if w := c.want(1, 201, "PUT", "/api/queues/b/q", `{"durable":true}`); w.Header().Get("Retry-After") != "" || asked < 6 {
		t.Errorf("got the header %v, after %d questions", w.Header(), asked)
	}
}

// A user that loses its rights while its request waits for a new owner is refused.
func TestRightsThatEndDuringAMove(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(r *rig) error
	}{
		{"in the vhost", func(r *rig) error { _, err := r.api.users().ClearPermissions("u", "v"); return err }},
		{"to log in", func(r *rig) error { _, err := r.api.users().Delete("u"); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.do(201, "PUT", "/api/vhosts/v", "")
			r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"management"}`)
			r.do(201, "PUT", "/api/permissions/v/u", `{"configure":".*","write":".*","read":".*"}`)
			attempts := 0
			r.api.router = newRouter([]route{{"queues/{vhost}", []endpoint{get(atOwner, inVHost, func(c *request) error {
				if attempts++; attempts == 1 {
					must(t, tt.end(r))
					return errElsewhere
				}
				return listObjects(c, nil)
			})}}})
			if w := r.serve(r.request("u:u", "GET", "/api/queues/v", "")); w.Code != 401 || attempts != 1 {
				t.Errorf("got %d %s after %d attempts", w.Code, w.Body, attempts)
			}
		})
	}
}

const toBubble = " HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"

// wantStatus reads an answer and wants a status.
func (b *liveBubble) wantStatus(status int) {
	b.t.Helper()
	answer, err := http.ReadResponse(b.answers, nil)
	must(b.t, err)
	if answer.StatusCode != status {
		b.t.Errorf("got %v, want %d", answer, status)
	}
}

// A short body may take as long as a long one. It was read before the request got the time for that: 408 after half a minute.
func TestShortDefinitionsMayComeSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		_, err := b.client.Write([]byte("POST /api/definitions" + toBubble + "Content-Length: 2\r\n\r\n{"))
		must(t, err)
		time.Sleep(uploadTimeout - time.Second)
		if _, err := b.client.Write([]byte("}")); err != nil {
			t.Fatal(err)
		}
		b.wantStatus(204)
	})
}

// A request that needs no body is answered before the body comes.
func TestUnwantedBodyIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		began := time.Now()
		_, err := b.client.Write([]byte("DELETE /api/users/none" + toBubble + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"))
		must(t, err)
		b.wantStatus(404)
		if d := time.Since(began); d > time.Second {
			t.Errorf("the answer came after %s", d)
		}
	})
}

// The wait for a new owner does not take the time from what the owner does then: the connection ended without an answer.
func TestAnswerAfterALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLiveBubble(t)
		began := time.Now()
		b.api.router = newRouter([]route{{"slow", []endpoint{get(here, anyone, func(c *request) error {
			if time.Since(began) < moveTime-time.Second {
				return errElsewhere
			}
			time.Sleep(operationTimeout + 2*time.Second)
			return c.done(c.r.Context().Err())
		})}}})
		_, err := b.client.Write([]byte("GET /api/slow" + toBubble + "\r\n"))
		must(t, err)
		b.wantStatus(204)
	})
}

// A broker that ends does not wait for requests that wait for a new owner, which get an answer. They were cut off.
func TestWaitForAnOwnerEndsWithTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := bubbleOf(t, told(1))
		api := server.Handler.(contained).Handler.(*API)
		b := &liveBubble{t: t, api: api, client: client}
		b.declare("q")
		v, _ := api.Store.VHost("/")
		v.Move("it moves")
		_, err := client.Write([]byte("GET /api/queues/%2F/q" + toBubble + "\r\n"))
		must(t, err)
		time.Sleep(time.Second)
		began := time.Now()
		ended := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			ended <- server.Shutdown(ctx)
		}()
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		must(t, err)
		if answer.StatusCode != 503 {
			t.Errorf("got %v", answer)
		}
		_, _ = bufio.NewReader(answer.Body).ReadString(0)
		must(t, <-ended)
		if d := time.Since(began); d > time.Second {
			t.Errorf("the broker ended after %s", d)
		}
	})
}

// A request for a vhost that its owner has handed over, which the asked node does not know yet, is carried out by the new owner. It was
// refused with "no owner now".
func TestRequestsFollowAVHostThatTheOwnerHasLeft(t *testing.T) {
	c := newCluster(t)
	must(t, func() error { _, err := c.rigs[1].api.Store.DeleteVHost("b"); return err }())
	c.rigs[1].api.nodes.placements = deluded{c.nodes[1], "b", 0} // it knows no owner
	asked := 0
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if asked++; asked == 2 {
			c.arrive("b", 2)
		}
		c.rigs[1].api.Forwarded().ServeHTTP(w, q)
	}))
	if w := c.want(0, 201, "PUT", "/api/queues/b/q", `{"durable":true}`); asked != 2 {
		t.Errorf("got %d after %d requests to the former owner", w.Code, asked)
	}
	if !strings.Contains(c.want(2, 200, "GET", "/api/queues/b/q", "").Body.String(), `"durable":true`) {
		t.Error("the queue is not durable")
	}
}

// A change waits for an owner that the nodes agree on a moment later, as they do whenever a vhost or the registry moves. It was refused with
// "no owner now". Requests to show something still are, because without a majority pages would hang.
func TestChangesWaitForAnOwner(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		status       int
	}{{"PUT", "/api/queues/c/new", 201}, {"DELETE", "/api/queues/c/q", 204}, {"GET", "/api/queues/c/q", 503}, {"HEAD", "/api/queues/c/q", 503}} {
		c := newCluster(t)
		c.want(2, 201, "PUT", "/api/queues/c/q", `{"durable":true}`)
		c.mu.Lock()
		c.owners["c"] = 0
		c.mu.Unlock()
		asked := 0
		c.located = func(string) {
			if asked++; asked == 5 {
				c.assign("c", 2)
			}
		}
		if w := c.want(0, tt.status, tt.method, tt.path, `{"durable":true}`); (w.Header().Get("Retry-After") != "") != (tt.status == 503) {
			t.Errorf("%s: got the header %v", tt.method, w.Header())
		}
	}
}

// A step of an import that another node has refused does not say that nothing was done, after other steps were done.
func TestImportOfWhichAPartWasDone(t *testing.T) {
	for _, status := range []error{errElsewhere, errMoved} {
		c := newCluster(t)
		asked := 0
		c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get(stepHeader) != string(definitions.ApplyVHosts) {
				c.rigs[1].api.Forwarded().ServeHTTP(w, q)
				return
			}
			asked++
			(&request{caller: caller{api: c.rigs[1].api, w: w, r: q}, forwarded: true}).refuse(status)
		}))
		const file = `{"users":[{"name":"new","password":"p","tags":""}],"queues":[{"name":"q","vhost":"b","durable":true}]}`
		w := c.want(0, 503, "POST", "/api/definitions", file)
		if asked != 1 || !strings.Contains(w.Body.String(), "whether it was done is not known") {
			t.Errorf("%v: got %s after %d requests", status, w.Body, asked)
		}
		c.want(0, 200, "GET", "/api/users/new", "")
	}
}
