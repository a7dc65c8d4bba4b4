package management

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"
)

// name finds out what the API calls the connection of a user.
func (b broker) name(t *testing.T, user string) string {
	t.Helper()
	var found string
	eventually(t, "the connection of "+user+" is listed", func() bool {
		var all []struct{ Name, User, State string }
		b.get(t, "/connections", &all)
		for _, c := range all {
			if c.User == user && c.State == "running" {
				found = c.Name
			}
		}
		return found != ""
	})
	return found
}

// Each way to close a connection tells its client the reason.
func TestCloseConnection(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.newVHost(t, "closing")
			for _, tt := range []struct {
				how, reason string
				close       func(t *testing.T, name string)
			}{
				{"rabbitmqctl", "CONNECTION_FORCED - time to go", func(t *testing.T, name string) {
					t.Helper()
					b.ctl(t, "close_connection", name, "time to go")
				}},
				{"rabbitmqadmin", "CONNECTION_FORCED - Closed via management plugin", func(t *testing.T, name string) {
					t.Helper()
					if status, stdout, stderr := b.admin(t, "", "close", "connection", "name="+name); status != 0 {
						t.Errorf("exit status %d: %s%s", status, stdout, stderr)
					}
				}},
				{"HTTP", "CONNECTION_FORCED - that is all", func(t *testing.T, name string) {
					t.Helper()
					status, text := b.http(t, "guest", http.MethodDelete, at("connections", name), "", "X-Reason", "that is all")
					if status != http.StatusNoContent {
						t.Errorf("%d %s", status, text)
					}
				}},
				{"all", "CONNECTION_FORCED - everybody out", func(t *testing.T, _ string) {
					t.Helper()
					b.ctl(t, "close_all_connections", "-p", "closing", "everybody out")
				}},
				{"user", "CONNECTION_FORCED - you, too", func(t *testing.T, _ string) {
					t.Helper()
					b.ctl(t, "close_all_user_connections", "closing-user", "you, too")
				}},
			} {
				t.Run(tt.how, func(t *testing.T) {
					user := "closing-" + strings.ToLower(tt.how)
					b.newUser(t, user)
					b.ctl(t, "set_permissions", "-p", "closing", user, "", "", "")
					conn, err := b.connect(user, user, "closing")
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					closed := conn.NotifyClose(make(chan *amqp091.Error, 1))
					tt.close(t, b.name(t, user))
					wantClosed(t, farewell(t, closed), amqp091.ConnectionForced, tt.reason)
				})
			}
		})
	}
}

// What is deleted closes the connections that depend on it.
func TestDeletionClosesConnections(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.newVHost(t, "doomed")
			b.newUser(t, "doomed-user")
			b.ctl(t, "set_permissions", "-p", "doomed", "doomed-user", "", "", "")
			conn, err := b.connect("doomed-user", "doomed-user", "doomed")
			if err != nil {
				t.Fatal(err)
			}
			closed := conn.NotifyClose(make(chan *amqp091.Error, 1))
			b.name(t, "doomed-user")
			b.ctl(t, "delete_user", "doomed-user")
			wantClosed(t, farewell(t, closed), amqp091.ConnectionForced, "CONNECTION_FORCED - user 'doomed-user' is deleted")
			conn, err = b.connect("guest", "guest", "doomed")
			if err != nil {
				t.Fatal(err)
			}
			closed = conn.NotifyClose(make(chan *amqp091.Error, 1))
			eventually(t, "the connection is listed", func() bool {
				var all []struct{ VHost string }
				b.get(t, "/connections", &all)
				return slices.ContainsFunc(all, func(c struct{ VHost string }) bool { return c.VHost == "doomed" })
			})
			b.ctl(t, "delete_vhost", "doomed")
			err = farewell(t, closed)
			if b.late && err != nil && strings.Contains(err.Error(), "vhost 'doomed' is down") {
				return // which is what RabbitMQ may know of it by then
			}
			wantClosed(t, err, amqp091.ConnectionForced, "CONNECTION_FORCED - vhost 'doomed' is deleted")
		})
	}
}

// The columns that stand for processes hold names that other commands take.
func TestListConnections(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.newVHost(t, "listing")
			b.newUser(t, "listed")
			b.ctl(t, "set_permissions", "-p", "listing", "listed", ".*", ".*", ".*")
			ch := b.dial(t, "listed", "listed", "listing")
			declare(t, ch, nil, "q")
			if err := ch.Qos(7, 0, false); err != nil {
				t.Fatal(err)
			}
			if _, err := ch.Consume("q", "tag", false, false, false, false, amqp091.Table{"x-priority": 5}); err != nil {
				t.Fatal(err)
			}
			name := b.name(t, "listed")
			grep := func(t *testing.T, want string, args ...string) {
				t.Helper()
				eventually(t, strings.Join(args, " ")+" prints "+want, func() bool {
					for line := range strings.Lines(b.ctl(t, args...)) {
						if strings.TrimSuffix(line, "\n") == want {
							return true
						}
					}
					return false
				})
			}
			grep(t, name+"\tlisted\tlisting\t{0,9,1}\t1", "list_connections", "pid", "user", "vhost", "protocol", "channels")
			grep(t, name+" (1)\t"+name+"\t1\tlisted\t1\t0", "list_channels", "pid", "connection", "number", "user", "consumer_count", "messages_unacknowledged")
			grep(t, "q\t"+name+" (1)\ttag\ttrue\t7\ttrue\t[{\"x-priority\",5}]", "list_consumers", "-p", "listing")
		})
	}
}
