package ctl

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
)

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
