package management

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// eventually waits for something that the broker will do.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !process.Poll(done) {
		t.Fatalf("in vain: %s", what)
	}
}

// http calls the management API, as user with the password that has the same name, and returns the answer.
func (b broker) http(t *testing.T, user, method, path, body string, header ...string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+b.api+"/api"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth(user, user)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	status, text, err = process.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

// get decodes what is at path.
func (b broker) get(t *testing.T, path string, into any) {
	t.Helper()
	status, text := b.http(t, "guest", http.MethodGet, path, "")
	if status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, status, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("GET %s: %v in %s", path, err, text)
	}
}

// change calls the API, which must succeed.
func (b broker) change(t *testing.T, method, path, body string) {
	t.Helper()
	if status, text := b.http(t, "guest", method, path, body); status/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
}

// newVHost adds a virtual host with all permissions for guest, and opens a channel there.
func (b broker) newVHost(t *testing.T, name string) *amqp091.Channel {
	t.Helper()
	b.ctl(t, "add_vhost", name)
	t.Cleanup(func() { _, _, _ = b.tool(t, "", "delete_vhost", name) }) // RabbitMQ serves other tests, too
	b.ctl(t, "set_permissions", "-p", name, "guest", ".*", ".*", ".*")
	return b.dial(t, "guest", "guest", name)
}

// newUser adds a user whose password is the name.
func (b broker) newUser(t *testing.T, name string, tags ...string) {
	t.Helper()
	b.ctl(t, "add_user", name, name)
	t.Cleanup(func() { _, _, _ = b.tool(t, "", "delete_user", name) }) // RabbitMQ serves other tests, too
	if len(tags) > 0 {
		b.ctl(t, append([]string{"set_user_tags", name}, tags...)...)
	}
}

// declare declares durable queues.
func declare(t *testing.T, ch *amqp091.Channel, arguments amqp091.Table, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := ch.QueueDeclare(name, true, false, false, false, arguments); err != nil {
			t.Fatal(err)
		}
	}
}

// send publishes a message to a queue and waits until it is there.
func send(t *testing.T, ch *amqp091.Channel, queue string, bodies ...string) {
	t.Helper()
	if err := publish(t, ch, queue, bodies...); err != nil {
		t.Fatal(err)
	}
}

// depth is how many messages are ready in a queue.
func depth(t *testing.T, ch *amqp091.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

// emptied waits until there is nothing in a queue.
func emptied(t *testing.T, ch *amqp091.Channel, queue string) {
	t.Helper()
	eventually(t, queue+" is empty", func() bool { return depth(t, ch, queue) == 0 })
}

// wantDepth says that there should be n messages in a queue now.
func wantDepth(t *testing.T, ch *amqp091.Channel, queue string, n int) {
	t.Helper()
	if got := depth(t, ch, queue); got != n {
		t.Errorf("%d messages in %s, want %d", got, queue, n)
	}
}

// wantListed waits until list_queues prints these lines for a virtual host.
func (b broker) wantListed(t *testing.T, vhost, columns string, lines ...string) {
	t.Helper()
	want := strings.Join(unordered(lines), "\n")
	var got string
	if !process.Poll(func() bool {
		out := b.ctl(t, "list_queues", "-p", vhost, "-s", columns)
		got = strings.Join(unordered(strings.Split(strings.TrimSuffix(out, "\n"), "\n")), "\n")
		return got == want || !b.late
	}) || got != want {
		t.Errorf("list_queues %s prints\n%s\nwant\n%s", columns, got, want)
	}
}

// at is the path of a resource whose parts may have any character.
func at(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}
