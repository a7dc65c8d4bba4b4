package management

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// wantRefused checks that an access was refused. RabbitMQ 3.10 does not say which kind of access, as later ones do.
func (b broker) wantRefused(t *testing.T, err error, kind, rest string) {
	t.Helper()
	if b.late {
		kind = ""
	}
	wantClosed(t, err, amqp091.AccessRefused, "ACCESS_REFUSED - "+kind+rest)
}

// farewell is how a channel or a connection was closed, or nil.
func farewell(t *testing.T, closed <-chan *amqp091.Error) error {
	t.Helper()
	if err, open, _ := process.Receive(closed); open {
		return err
	}
	return nil
}

// wantClosed checks how the broker closed a channel or a connection.
func wantClosed(t *testing.T, err error, code int, reason string) {
	t.Helper()
	closed, ok := errors.AsType[*amqp091.Error](err)
	if !ok || closed.Code != code || closed.Reason != reason {
		t.Errorf("got %v, want %d %s", err, code, reason)
	}
}

func TestPermissionRefused(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.newVHost(t, "access")
			b.newUser(t, "reader", "management")
			if _, err := b.connect("reader", "reader", "access"); err == nil {
				t.Error("whoever has no permission in a virtual host may not enter it")
			}
			b.ctl(t, "set_permissions", "-p", "access", "reader", "^mine", "^mine", ".*")
			declare(t, b.dial(t, "guest", "guest", "access"), nil, "theirs")
			declare(t, b.dial(t, "reader", "reader", "access"), nil, "mine")

			_, err := b.dial(t, "reader", "reader", "access").QueueDeclare("other", true, false, false, false, nil)
			const refused = "access to queue 'other' in vhost 'access' refused for user 'reader'"
			b.wantRefused(t, err, "configure ", refused)
			_, err = b.dial(t, "reader", "reader", "access").QueuePurge("theirs", false)
			if err != nil {
				t.Errorf("reading is permitted: %v", err)
			}
			err = b.dial(t, "reader", "reader", "access").QueueBind("theirs", "k", "amq.direct", false, nil)
			b.wantRefused(t, err, "write ", "access to queue 'theirs' in vhost 'access' refused for user 'reader'")

			if status, text := b.http(t, "reader", http.MethodPut, "/queues/access/other", "{}"); status != http.StatusUnauthorized || !b.late && !strings.Contains(text, "configure "+refused) {
				t.Errorf("over HTTP: %d %s", status, text)
			}
			if status, text := b.http(t, "reader", http.MethodPut, "/queues/access/mine2", "{}"); status != http.StatusCreated {
				t.Errorf("over HTTP: %d %s", status, text)
			}
		})
	}
}

// What users may ask the API for, their tags say.
func TestTags(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.newVHost(t, "tags")
			for _, user := range []string{"none", "management", "policymaker", "monitoring", "administrator"} {
				b.newUser(t, "tagged-"+user, user)
				b.ctl(t, "set_permissions", "-p", "tags", "tagged-"+user, "", "", "")
			}
			const policy = `{"pattern":"^nosuch$","definition":{"expires":1000}}`
			type call struct{ method, path, body, tags string }
			calls := []call{
				{"GET", "/whoami", "", "management policymaker monitoring administrator"},
				{"GET", "/connections", "", "management policymaker monitoring administrator"},
				{"GET", "/nodes", "", "monitoring administrator"},
				{"PUT", "/policies/tags/p", policy, "policymaker administrator"},
				{"PUT", "/operator-policies/tags/p", policy, "administrator"},
				{"GET", "/users", "", "administrator"},
				{"PUT", "/users/tagged-none", `{"password":"x","tags":""}`, "administrator"},
				{"PUT", "/vhost-limits/tags/max-queues", `{"value":1000}`, "administrator"},
				{"GET", "/vhost-limits/tags", "", "management policymaker monitoring administrator"},
				{"GET", "/parameters/vhost-limits/tags", "", "policymaker administrator"},
				{"GET", "/operator-policies/tags/p", "", "administrator"},
				{"GET", "/global-parameters", "", "policymaker administrator"},
				{"PUT", "/global-parameters/tags", `{"value":1}`, "policymaker administrator"},
				{"GET", "/definitions/tags", "", "administrator"},
			}
			if !b.late { // RabbitMQ lets policymakers do by these paths what it has administrators do by others
				calls = append(calls, []call{
					{"PUT", "/parameters/vhost-limits/tags/limits", `{"value":{"max-queues":1000}}`, "administrator"},
					{"PUT", "/cluster-name", `{"name":"a name"}`, "administrator"},
					{"PUT", "/global-parameters/cluster_name", `{"value":"a name"}`, "administrator"},
				}...)
			}
			for _, tag := range []string{"none", "management", "policymaker", "monitoring", "administrator"} {
				for _, c := range calls {
					status, text := b.http(t, "tagged-"+tag, c.method, c.path, c.body)
					if may := slices.Contains(strings.Fields(c.tags), tag); may != (status/100 == 2) || !may && status != http.StatusUnauthorized {
						t.Errorf("%s %s with the tag %s: %d %s", c.method, c.path, tag, status, text)
					}
				}
			}
		})
	}
}

func TestTopicPermissions(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			guest := b.newVHost(t, "topics")
			declare(t, guest, nil, "q")
			b.newUser(t, "topical")
			b.ctl(t, "set_permissions", "-p", "topics", "topical", ".*", ".*", ".*")
			b.ctl(t, "set_topic_permissions", "-p", "topics", "topical", "amq.topic", "^news", "^news")
			ch := b.dial(t, "topical", "topical", "topics")
			if err := ch.QueueBind("q", "news.#", "amq.topic", false, nil); err != nil {
				t.Error(err)
			}
			if err := ch.PublishWithContext(t.Context(), "amq.topic", "news.today", false, false, amqp091.Publishing{}); err != nil {
				t.Error(err)
			}
			eventually(t, "the news arrive", func() bool { return depth(t, ch, "q") == 1 })
			closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
			if err := ch.PublishWithContext(t.Context(), "amq.topic", "rumours", false, false, amqp091.Publishing{}); err != nil {
				t.Error(err)
			}
			b.wantRefused(t, farewell(t, closed), "write ",
				"access to topic 'rumours' in exchange 'amq.topic' in vhost 'topics' refused for user 'topical'")
			err := b.dial(t, "topical", "topical", "topics").QueueBind("q", "#", "amq.topic", false, nil)
			b.wantRefused(t, err, "read ",
				"access to topic '#' in exchange 'amq.topic' in vhost 'topics' refused for user 'topical'")
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.newVHost(t, "limits")
			b.newUser(t, "limited")
			b.ctl(t, "set_permissions", "-p", "limits", "limited", ".*", ".*", ".*")
			b.ctl(t, "set_vhost_limits", "-p", "limits", `{"max-queues":1}`)
			declare(t, ch, nil, "one")
			_, err := ch.QueueDeclare("two", true, false, false, false, nil)
			wantClosed(t, err, amqp091.PreconditionFailed, "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost 'limits' (1) is reached")

			b.ctl(t, "set_user_limits", "limited", `{"max-connections":1}`)
			b.dial(t, "limited", "limited", "limits")
			eventually(t, "the connection counts", func() bool {
				conn, err := b.connect("limited", "limited", "limits")
				if err == nil {
					_ = conn.Close() // RabbitMQ counts a little later
				}
				return err != nil
			})
			b.ctl(t, "clear_user_limits", "limited", "all")
			b.dial(t, "limited", "limited", "limits")
			b.ctl(t, "set_vhost_limits", "-p", "limits", `{"max-connections":0}`)
			if _, err := b.connect("guest", "guest", "limits"); err == nil {
				t.Error("no connection may enter the virtual host")
			}
		})
	}
}

// A change of password counts for the next login.
func TestPasswords(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.newVHost(t, "passwords")
			b.newUser(t, "changing")
			b.ctl(t, "set_permissions", "-p", "passwords", "changing", "", "", "")
			b.dial(t, "changing", "changing", "passwords")
			b.ctl(t, "change_password", "changing", "new")
			b.dial(t, "changing", "new", "passwords")
			_, err := b.connect("changing", "changing", "passwords")
			wantClosed(t, err, amqp091.AccessRefused, "username or password not allowed")
			b.ctl(t, "clear_password", "changing")
			_, err = b.connect("changing", "new", "passwords")
			wantClosed(t, err, amqp091.AccessRefused, "username or password not allowed")
		})
	}
}
