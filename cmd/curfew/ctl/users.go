package ctl

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/curfewmq/curfew/core/auth"
)

func userCommands() []command {
	const stdin = "Without the operand, the password is asked for, or read from standard input."
	const blank = " With an empty one, the user\ncannot log in with a password."
	return []command{
		{
			name: "add_user", operands: "<username> [<password>]", check: nonEmptyUser, run: addUser,
			options: []option{{long: "pre-hashed-password", about: "the password is a password_hash, as in definitions"}},
			about:   "adds a user, without permissions", more: stdin + blank,
		},
		{
			name: "delete_user", operands: "<username>", about: "removes a user and its permissions",
			run: deletion(`Deleting user "{1}" ...`, "users/{1}", &failure{noUser, "Error:\nUser \"{1}\" does not exist"}),
		},
		{name: "change_password", operands: "<username> [<password>]", run: changePassword, about: "sets a user's password", more: stdin + blank},
		{
			name: "clear_password", operands: "<username>", run: clearPassword,
			about: "removes a user's password: the user cannot log in with one",
		},
		{
			name: "authenticate_user", operands: "<username> [<password>]", run: authenticateUser,
			about: "checks a user's password", more: stdin,
		},
		{
			name: "hash_password", operands: "[<password>]", run: hashPassword, offline: true,
			about: "prints a password's hash, for add_user --pre-hashed-password", more: stdin,
		},
		{
			name: "eval", operands: "<expression>", run: eval, check: checkEval,
			about: "checks a user's password the way Puppet does",
			more:  "It accepts one expression: rabbit_access_control:check_user_pass_login(list_to_binary(\"USER\"), list_to_binary(\"PASSWORD\")).",
		},
		{
			name: "set_user_tags", operands: "<username> [<tag> ...]", run: setUserTags,
			about: "replaces a user's tags: " + strings.Join(auth.Tags(), ", ") + ", or others", more: "Without tags, removes all tags of the user.",
		},
		{
			name: "list_users", about: "lists users and their tags",
			run: listing{"Listing users ...", "users", nil, columns("user=name tags:names")}.run,
		},
	}
}

func nonEmptyUser(c *call) error {
	if c.operands[0] == "" {
		return &misuse{dataError, "Bad argument: user cannot be an empty string"}
	}
	return nil
}

// hashing is the algorithm of a password_hash that names none.
const hashing = "rabbit_password_hashing_sha256"

func addUser(ctx context.Context, c *call) error {
	name := c.operands[0]
	c.banner("Adding user \"%s\" ...", name)
	password, err := c.password(ctx, 1)
	if err != nil {
		return err
	}
	switch _, err := c.user(ctx, name); {
	case err == nil:
		return failed(softwareError, "User \"%s\" already exists", name)
	case !isRefusal(err, http.StatusNotFound):
		return err
	}
	body := map[string]any{"tags": ""}
	switch {
	case c.has("pre-hashed-password"):
		body["password_hash"], body["hashing_algorithm"] = password, hashing
	case password == "":
		body["password_hash"] = "" // nobody can log in
	default:
		body["password"] = password
	}
	if err := c.api.put(ctx, c.path("users/{1}"), body); err != nil {
		return err
	}
	c.remarkIfEmpty(password)
	if c.has("quiet") || c.has("silent") {
		return nil
	}
	return c.result("Done. Don't forget to grant the user permissions to some virtual hosts! See '%s help set_permissions' to learn more.", c.program.Name)
}

// user returns the API's description of a user.
func (c *call) user(ctx context.Context, name string) (object, error) {
	var u object
	err := c.api.get(ctx, path("users", name), &u)
	return u, err
}

// changeUser replaces properties of the user in the first operand. It sends the others unchanged, because a request sets all of them.
func (c *call) changeUser(ctx context.Context, change func(body map[string]any)) error {
	u, err := c.user(ctx, c.operands[0])
	if err != nil {
		return instead(err, noSuchUser(c.operands[0]))
	}
	body := map[string]any{"tags": u["tags"], "password_hash": u.text("password_hash")}
	if algorithm := u.text("hashing_algorithm"); algorithm != "" {
		body["hashing_algorithm"] = algorithm
	}
	change(body)
	return c.put(ctx, "users/{1}", body)
}

func changePassword(ctx context.Context, c *call) error {
	c.banner("Changing password for user \"%s\" ...", c.operands[0])
	password, err := c.password(ctx, 1)
	if err != nil {
		return err
	}
	err = c.changeUser(ctx, func(body map[string]any) {
		delete(body, "hashing_algorithm")
		if password == "" {
			body["password_hash"] = ""
			return
		}
		delete(body, "password_hash")
		body["password"] = password
	})
	if err != nil {
		return err
	}
	c.remarkIfEmpty(password)
	return nil
}

func clearPassword(ctx context.Context, c *call) error {
	c.banner("Clearing password for user \"%s\" ...", c.operands[0])
	return c.changeUser(ctx, func(body map[string]any) {
		body["password_hash"] = ""
		delete(body, "hashing_algorithm")
	})
}

func authenticateUser(ctx context.Context, c *call) error {
	name := c.operands[0]
	c.banner("Authenticating user \"%s\" ...", name)
	password, err := c.password(ctx, 1)
	if err != nil {
		return err
	}
	switch refused, err := c.authenticate(ctx, name, password); {
	case err != nil:
		return err
	case refused != "":
		return failed(dataError, "Error: failed to authenticate user \"%s\"\nuser '%s' - %s", name, name, refused)
	}
	return c.result("Success")
}

// authenticate logs in to the API as a user. It returns the API's reason for refusing the password; "" = the password is right. A user
// without tags may not use the API, but the API says so only after it has accepted the password.
func (c *call) authenticate(ctx context.Context, name, password string) (refused string, err error) {
	api := *c.api
	api.user, api.password = name, password
	err = api.get(ctx, c.path("whoami"), nil)
	r, ok := errors.AsType[*refusal](err)
	switch {
	case !ok:
		return "", err
	case r.status == http.StatusTooManyRequests, r.status >= http.StatusInternalServerError: // the password was not checked
		return "", failed(temporaryFailure, "the password of user '%s' was not checked: %s", name, r.reason)
	case r.reason == "Not management user":
		return "", nil
	case r.reason == "Login failed":
		return "invalid credentials", nil
	}
	return r.reason, nil
}

// hashPassword prints the hash for add_user --pre-hashed-password: a random salt, and SHA-256 of the salt and the password.
func hashPassword(ctx context.Context, c *call) error {
	c.banner("Will hash password")
	password, err := c.password(ctx, 0)
	if err != nil {
		return err
	}
	if password == "" {
		return errNoPassword
	}
	salted := make([]byte, 4, 4+sha256.Size)
	_, _ = rand.Read(salted) // it never fails
	sum := sha256.Sum256(append(salted[:4:4], password...))
	return c.result("%s", base64.StdEncoding.EncodeToString(append(salted, sum[:]...)))
}

func setUserTags(ctx context.Context, c *call) error {
	tags := c.operands[1:]
	c.banner("Setting tags for user \"%s\" to [%s] ...", c.operands[0], strings.Join(tags, ", "))
	if err := c.changeUser(ctx, func(body map[string]any) { body["tags"] = strings.Join(tags, ",") }); err != nil {
		return err
	}
	for tag := range strings.SplitSeq(strings.Join(tags, ","), ",") {
		if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(auth.Tags(), tag) {
			c.remark("the tag '%s' has no meaning here; these have one: %s", tag, strings.Join(auth.Tags(), ", "))
		}
	}
	return nil
}

// remark prints a warning that rabbitmqctl does not print.
func (c *call) remark(format string, args ...any) {
	if c.program.Name != rabbitmqctl {
		c.api.warn(fmt.Sprintf(format, args...))
	}
}

// remarkIfEmpty says what an empty password means.
func (c *call) remarkIfEmpty(password string) {
	if password == "" {
		c.remark("the password is empty: user '%s' cannot log in with a password until change_password sets one", c.operands[0])
	}
}

// password returns the operand with that index, or reads the password from standard input.
func (c *call) password(ctx context.Context, operand int) (string, error) {
	if len(c.operands) > operand {
		return c.operands[operand], nil
	}
	if c.verbose() {
		fmt.Fprint(c.program.Stdout, "Password: ")
		defer fmt.Fprintln(c.program.Stdout)
	}
	read := func() (string, error) { return readLine(c.program.Stdin) }
	if file, ok := c.program.Stdin.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		fd := int(file.Fd())
		if state, err := term.GetState(fd); err == nil {
			defer func() { _ = term.Restore(fd, state) }() // if ctx ends, the read continues, and the echo would stay off
		}
		read = func() (string, error) {
			password, err := term.ReadPassword(fd)
			return string(password), err
		}
	}
	return unless(ctx, read)
}

var errNoPassword = failed(dataError, "Password is not provided via argument or stdin")

// readLine reads a line without its end.
func readLine(from io.Reader) (string, error) {
	line, err := bufio.NewReader(from).ReadString('\n')
	if line != "" && errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

// unless runs read, which may wait for a person, and returns an error if ctx ends first.
func unless(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		line string
		err  error
	}
	results := make(chan result, 1)
	go func() {
		line, err := read()
		results <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-results:
		if errors.Is(r.err, io.EOF) {
			return "", errNoPassword
		}
		return r.line, r.err
	}
}

// checkLogin matches the only expression that eval accepts: Puppet's rabbitmq_user checks passwords with it.
var checkLogin = regexp.MustCompile(`^\s*rabbit_access_control:check_user_pass_login\(\s*` + erlangText + `\s*,\s*` + erlangText + `\s*\)\s*\.?\s*$`)

// erlangText matches a binary that holds a text.
const erlangText = `(?:list_to_binary\(\s*"((?:[^"\\]|\\.)*)"\s*\)|<<"((?:[^"\\]|\\.)*)">>)`

var erlangEscape = regexp.MustCompile(`\\(.)`)

// login returns the name and the password from the expression that eval accepts; ok is false for any other expression.
func login(expression string) (name, password string, ok bool) {
	m := checkLogin.FindStringSubmatch(expression)
	if m == nil {
		return "", "", false
	}
	return erlangEscape.ReplaceAllString(m[1]+m[2], "$1"), erlangEscape.ReplaceAllString(m[3]+m[4], "$1"), true
}

func checkEval(c *call) error {
	if _, _, ok := login(c.operands[0]); !ok {
		return &failure{usageError, "Error:\neval knows only rabbit_access_control:check_user_pass_login(list_to_binary(\"USER\"), list_to_binary(\"PASSWORD\")).: " + noErlang}
	}
	return nil
}

// eval prints the result that RabbitMQ's function would have.
func eval(ctx context.Context, c *call) error {
	name, password, _ := login(c.operands[0])
	binary := `<<"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `">>`
	refused, err := c.authenticate(ctx, name, password)
	switch {
	case err != nil:
		return err
	case refused != "":
		return c.result(`{refused,%s,"user '~s' - %s",[%s]}`, binary, refused, binary)
	}
	u, err := c.user(ctx, name)
	if err != nil {
		return err
	}
	var tags []string
	if json.Unmarshal(u["tags"], &tags) != nil {
		tags = strings.FieldsFunc(u.text("tags"), func(r rune) bool { return r == ',' })
	}
	return c.result("{ok,{user,%s,[%s],[{rabbit_auth_backend_internal,none}]}}", binary, strings.Join(tags, ","))
}
