package probe

import (
	"strconv"
)

// The reasons that carry no status code and no transport class.
const (
	HealthPassed      = "health_passed"
	IdentityPassed    = "identity_passed"
	IdentityMismatch  = "identity_mismatch"
	IdentityOversized = "identity_oversized"
	IdentityMalformed = "identity_malformed"
	MetadataPassed    = "metadata_passed"
	MetadataMismatch  = "metadata_mismatch"
	MetadataMissing   = "metadata_missing"
	MetadataOversized = "metadata_oversized"
	MetadataMalformed = "metadata_malformed"
	ExercisePassed    = "exercise_passed"
	ExerciseEmpty     = "exercise_empty"
	ExerciseMismatch  = "exercise_mismatch"
	ExerciseOversized = "exercise_oversized"
	ExerciseMalformed = "exercise_malformed"
	Timeout           = "probe_timeout"
)

// Reasons lists the whole vocabulary. Passed means that the step was the last one required.
// "<code>" stands for the three digits of a status, 100 to 999; everything else is literal.
// Oversized is an answer above MaxBody, or a collected field above 256 bytes.
//
// The class after "_transport_" says how the exchange ended: refused (nothing listens), reset,
// closed (the connection ended before the answer did), dns, tls (handshake, certificate or
// alert), unreachable (no route, or the kernel gave up), protocol (not HTTP, malformed, or more
// than 32 KiB of header), credential (no usable token), canceled (the caller's context),
// other. A deadline is probe_timeout wherever it struck.
func Reasons() []string {
	reasons := []string{
		Timeout, HealthPassed,
		IdentityPassed, IdentityMismatch, IdentityOversized, IdentityMalformed,
		MetadataPassed, MetadataMismatch, MetadataMissing, MetadataOversized, MetadataMalformed,
		ExercisePassed, ExerciseEmpty, ExerciseMismatch, ExerciseOversized, ExerciseMalformed,
	}
	for _, s := range []step{stepHealth, stepIdentity, stepMetadata, stepExercise} {
		reasons = append(reasons, string(s)+"_http_<code>")
		for _, c := range classes {
			if c == classCredential && s != stepIdentity && s != stepExercise {
				continue
			}
			reasons = append(reasons, transport(s, c))
		}
	}
	return reasons
}

type step string

const (
	stepHealth   step = "health"
	stepIdentity step = "identity"
	stepMetadata step = "metadata"
	stepExercise step = "exercise"
)

func (s step) passed() string { return string(s) + "_passed" }

func (s step) http(code int) string { return string(s) + "_http_" + strconv.Itoa(code) }

type class string

const (
	classRefused     class = "refused"
	classReset       class = "reset"
	classClosed      class = "closed"
	classDNS         class = "dns"
	classTLS         class = "tls"
	classUnreachable class = "unreachable"
	classProtocol    class = "protocol"
	classCredential  class = "credential"
	classCanceled    class = "canceled"
	classOther       class = "other"
)

var classes = []class{
	classRefused, classReset, classClosed, classDNS, classTLS,
	classUnreachable, classProtocol, classCredential, classCanceled, classOther,
}

func transport(s step, c class) string { return string(s) + "_transport_" + string(c) }
