package tier

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A name that is not there says which was probably meant, in every command.
//
// Control: with the plain errors in their place, none of them had a hint.
func TestUnknownNamesSayWhatWasMeant(t *testing.T) {
	m := newModel(t)
	for target, says := range map[Target]string{
		{Tier: "haevy"}:                     `unknown tier "haevy" (did you mean heavy?)`,
		{Tier: "none"}:                      `unknown tier "none"`,
		{Tier: "heavy/h1"}:                  `unknown tier "heavy/h1"; it is a server of tier heavy: name both`,
		{Tier: "heavy", Server: "heavy/g1"}: `unknown server "heavy/g1" (did you mean heavy/h1?) in tier "heavy"`,
		{Tier: "heavy", Server: "fast/f1"}:  `unknown server "fast/f1" in tier "heavy"; it is one of tier fast`,
		{Tier: "heavy", Server: "other"}:    `unknown server "other" in tier "heavy"`,
	} {
		_, err := m.Servers(target)
		assert.EqualError(t, err, says)
		_, err = m.Spec(target.Tier)
		if target.Server == "" {
			assert.EqualError(t, err, says)
		} else {
			assert.NoError(t, err)
		}
	}
}
