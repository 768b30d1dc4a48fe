package api

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAside_Panic_BecomesError(t *testing.T) {
	t.Parallel()
	v, err := aside(func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, v)

	wrong := errors.New("wrong")
	_, err = aside(func() (int, error) { return 0, wrong })
	require.ErrorIs(t, err, wrong)

	_, err = aside(func() (int, error) { panic("deep down") })
	var p *errPanic
	require.ErrorAs(t, err, &p)
	require.Equal(t, "deep down", p.value)
	require.Contains(t, string(p.stack), "TestAside_Panic_BecomesError", "the stack names the place")
}
