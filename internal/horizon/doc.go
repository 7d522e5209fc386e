// Package horizon judges whether the daemon as a whole is ready.
//
// Its invariant: the daemon is ready only while some tier serves and no live tier
// fails to serve what it once served. Live means that something about the tier
// has changed within the horizon. All of it is judged at the moment of reading,
// from the rows last published and the clock; no verdict is remembered.
//
// A tier that breaks speaks for the whole daemon, because somebody is likely to
// be at work on it. One that has been broken and silent for longer than the
// horizon is a known loss: it would hold every other tier's readiness back for
// ever, so it is named and no longer counted. Age takes a veto away and gives
// nothing: silence makes no tier serve.
//
// What a tier once served is known for as long as its row is published without a
// gap. A tier that is removed and returns, and every tier after a restart of the
// daemon, has served nothing yet and holds no veto until it does.
//
// What cannot be told fails towards not ready. A row from the future is live, and
// a horizon that is no duration at all lets no row age.
package horizon
