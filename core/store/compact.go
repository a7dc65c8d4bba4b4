package store

// reclaim has definitions that lie in the log up to an extent written again, with everything of the same vhost, of the users or of
// the global parameters. It does not wait.
func (s *Store) reclaim(upTo uint32) {
	s.stale.Store(upTo)
	if s.recovered.Load() && s.condensing.CompareAndSwap(false, true) {
		s.running.Go(s.condense)
	}
}

func (s *Store) condense() {
	defer s.condensing.Store(false)
	for _, v := range s.VHosts() {
		v.CompactDefinitions()
	}
	s.users.CompactDefinitions()
	s.globals.condense()
}

// stale reports whether some of it lies in the log up to an extent.
func (t *logUsage) stale(upTo uint32) bool { return len(t.uses) > 0 && t.uses[0].Extent <= upTo }
