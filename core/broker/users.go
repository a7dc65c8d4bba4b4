package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
)

// configureUsers adds the users of the configuration that do not exist yet. They are durable when it returns. Its errors name the key.
func configureUsers(s setup, st *store.Store) error {
	return logUsers(s, st.Users())(addUsers(s, accounts{
		users:  st.Users(),
		exists: func(vhost string) bool { _, exists := st.VHost(vhost); return exists },
		add:    func(name string) error { _, err := st.AddVHost(name, vhost.Metadata{}); return err },
		once:   func(_ string, do func() error) error { return do() },
	}))
}

// configureMembers is configureUsers for a cluster whose registry this node owns. All nodes should have the same users configured. Each
// user is added once in the life of the cluster, so that a deleted user does not come back under the registry's next owner.
func configureMembers(s setup, r *store.Registry) error {
	return logUsers(s, r.Users())(addUsers(s, accounts{
		users:  r.Users(),
		exists: func(vhost string) bool { _, exists := r.Placement(vhost); return exists },
		add:    func(name string) error { _, _, err := r.Place(name, vhost.Metadata{}); return err },
		once: func(name string, do func() error) error {
			var failed error
			err := r.Once(name, func() error {
				failed = do()
				return failed
			})
			if err != nil && failed == nil {
				err = fmt.Errorf(": %w", err)
			}
			return err
		},
	}))
}

// logUsers logs which users were added, and warns if nobody can manage the broker.
func logUsers(s setup, users *auth.Store) func(added []string, err error) error {
	return func(added []string, err error) error {
		if len(added) > 0 {
			s.o.Log.Info("users of the configuration added", "users", strings.Join(added, ", "))
		}
		manageable := s.Listen.Management != "" || s.Listen.ManagementTLS != ""
		isAdministrator := func(a auth.Account) bool { return slices.Contains(a.Tags, auth.Administrator) }
		if err == nil && manageable && !slices.ContainsFunc(users.List(), isAdministrator) {
			s.o.Log.Warn("no user has the tag administrator; to add one, set the variables for a NAME that is new, and restart",
				"variables", "CURFEW_AUTH__USERS__NAME__PASSWORD, CURFEW_AUTH__USERS__NAME__TAGS=administrator")
		}
		return err
	}
}

// accounts are the users, and the vhosts that they may use.
type accounts struct {
	users  *auth.Store
	exists func(vhost string) bool
	add    func(vhost string) error
	once   func(name string, do func() error) error // calls do, unless that has succeeded before; its errors continue a key
}

// addUsers adds users with their vhosts, and returns the names of the users that it has added.
func addUsers(s setup, to accounts) (added []string, err error) {
	all := s.Auth.Users
	for _, section := range slices.Sorted(maps.Keys(all)) {
		u := all[section]
		err := to.once("auth.users: "+u.Name, func() error {
			if _, exists := to.users.Lookup(u.Name); exists {
				s.o.Log.Debug("a user of the configuration exists, and is left as it is", "user", u.Name)
				return nil
			}
			if err := addUser(to, u); err != nil {
				return err
			}
			added = append(added, u.Name)
			return nil
		})
		if err != nil {
			return added, fmt.Errorf("%s%w", u.Key(), err)
		}
	}
	return added, nil
}

// addUser adds a user with its vhosts. Its errors continue the key of the user's section.
func addUser(to accounts, u *config.User) error {
	a := u.Account()
	var err error
	if a.Password, err = hashOf(to.users, u); err != nil {
		return err
	}
	grants := u.Grants()
	for _, g := range grants {
		if to.exists(g.VHost) {
			continue
		}
		if err := to.add(g.VHost); err != nil {
			return fmt.Errorf(": vhost %q: %w", g.VHost, err)
		}
	}
	if _, err := to.users.Add(a, grants); err != nil {
		return fmt.Errorf(": %w", err)
	}
	return nil
}

func hashOf(users *auth.Store, u *config.User) (auth.Hash, error) {
	if u.PasswordHash != "" {
		return auth.ParseHash(string(u.PasswordHash), u.Hashing)
	}
	password := string(u.Password)
	if password == "" && u.PasswordFile == "" { // the user logs in with a certificate
		return auth.Hash{}, nil
	}
	if u.PasswordFile != "" {
		var err error
		if password, err = readPassword(u.PasswordFile); err != nil {
			return auth.Hash{}, fmt.Errorf(".password-file: %w", err)
		}
	}
	return users.Hash(password)
}

// maxPasswordFile is the maximum size of a file with a password, in bytes.
const maxPasswordFile = 4096

// readUpTo reads a file up to most bytes.
func readUpTo(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, int64(most)))
}

// readPassword reads a password from a file. A line break at the end is not part of the password.
func readPassword(path string) (string, error) {
	b, err := readUpTo(path, maxPasswordFile+1)
	if err != nil {
		return "", err // the error names the file
	}
	password, cut := strings.CutSuffix(string(b), "\n")
	if cut {
		password = strings.TrimSuffix(password, "\r")
	}
	switch {
	case len(b) > maxPasswordFile:
		err = fmt.Errorf("has more than %d bytes", maxPasswordFile)
	case bytes.ContainsRune(b, 0):
		err = errors.New("has a NUL, which no client can send")
	case strings.ContainsAny(password, "\r\n"):
		err = errors.New("has more than one line")
	case password == "":
		err = errors.New("is empty")
	}
	if err != nil {
		return "", fmt.Errorf("%s %w", path, err)
	}
	return password, nil
}
