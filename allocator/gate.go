package allocator

// gate holds the limits of a replay and notes every comparison with them. A
// replay depends on its limits through these comparisons alone, so that it
// answers for every limit between the largest value that passed and the
// smallest that was refused.
type gate struct {
	cap     int64 // of reserved bytes
	device  int64 // of bytes that the driver can give
	collect int64 // reserved bytes up to which nothing is collected
	passed  int64 // largest value that cap or device let through
	idle    int64 // largest value that collect let through
}

// setLimit puts limits in force. It keeps what has been noted.
func (a *Allocator) setLimit(limit Limit) {
	g := &a.gate
	g.cap, g.device, g.collect = unlimited, unlimited, unlimited
	if limit.Cap > 0 || a.set.ZeroFraction {
		g.cap = limit.Cap
	}
	if limit.Device > 0 {
		g.device = limit.Device
	}
	if a.ages = g.cap != unlimited && a.set.GCThreshold > 0; a.ages {
		g.collect = collectAbove(a.set.GCThreshold, g.cap)
	}
}

// collectAbove is the reserved size above which a cap collects garbage; the
// real allocator computes it in doubles too.
func collectAbove(threshold float64, limit int64) int64 {
	return int64(threshold * float64(limit))
}

// admit is whether a limit lets v through.
func (g *gate) admit(v, limit int64) bool {
	if v > limit {
		return false
	}
	g.passed = max(g.passed, v)
	return true
}

// admitCap asks the cap only.
func (g *gate) admitCap(v int64) bool { return g.cap == unlimited || g.admit(v, g.cap) }

// admitDevice asks the device limit only.
func (g *gate) admitDevice(v int64) bool { return g.device == unlimited || g.admit(v, g.device) }

// resting is whether v is small enough for collection to do nothing more.
func (g *gate) resting(v int64) bool {
	if v > g.collect {
		return false
	}
	g.idle = max(g.idle, v)
	return true
}
