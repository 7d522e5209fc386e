// Package agentcheck is the server side of HAProxy's agent-check protocol
// (HAProxy configuration manual, "agent-check").
//
// Invariant: every answer is one complete line made from memory in one write. A
// poll starts no I/O towards anything else, and a peer that says nothing costs
// at most one bounded slot for a bounded time.
//
// # Replies
//
//	admission  evidence        reply                    with State.AdminWords
//	open       ready           up, or up <weight>%      ready up <weight>%
//	open       anything else   down # <reason>          down # <reason>
//	quiesced   any             down # quiesced          drain # quiesced
//	unknown name               down # unknown_tier      -
//	nothing was asked          down # no_agent_send     -
//	the name did not end       down # read_timeout      -
//	too long, or not a name    down # bad_request       -
//	the source panicked        down # internal_error    -
//
// Each kind of line was taken through HAProxy 2.6, 3.0 and 3.2.
//
// A poll that cannot be understood is answered, and answered with down, because
// HAProxy ignores silence: the last state then stands for ever, and before the
// first answer that state is UP.
//
// Without AdminWords no reply holds an admin word. HAProxy keeps one pair of
// flags for its command line and for the agent, the last writer wins, and so a
// steady "ready" would undo an operator's drain at the next poll.
//
// A weight is part of a reply only as long as HAProxy has another one to take: what is
// said steadily would undo an operator's "set weight" at the next poll.
//
// With AdminWords the flags are the agent's own, and the rules are these:
//   - drain is sent without a health word. A down next to it would cut the
//     running streams of a server that has "on-marked-down shutdown-sessions",
//     and an up would open a server that was down to persistent clients, which
//     drain lets through. HAProxy shows a description only with a health word, so
//     "# quiesced" there is for people who ask the agent by hand.
//   - drain lasts until ready and down lasts until up, so the ready reply always
//     says both. The not-ready reply leaves the flags alone: whatever they are,
//     the next ready reply settles them.
//
// # Pitfalls
//
// Base weights must be 100 or so: HAProxy takes the percentage of the configured
// weight in whole numbers, and 50% of weight 1 is no traffic at all.
//
// Options.ReadTimeout must stay below HAProxy's agent-inter (its poll timeout,
// unless "timeout check" is set), or a name that does not end hears nothing.
//
// "down # quiesced" ends streams where "on-marked-down shutdown-sessions" is
// configured. Quiesce through the Runtime API and leave that option out.
package agentcheck
