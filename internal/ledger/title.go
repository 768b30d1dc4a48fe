package ledger

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"berth"
)

// titleBytes is how much of a text is read for a title. What precedes the first visible character within it is skipped.
const titleBytes = 4096

// The content is cut in the database: it may be a large image.
var selectTitle = `SELECT kind, name, substr(content, 1, ` + strconv.Itoa(titleBytes) + `) FROM assets WHERE id = $1 AND user_id = $2 AND erased_at = 0`

// titleOf returns the title of a new task from its asset; empty where that no longer exists, or has neither name nor text.
func titleOf(ctx context.Context, tx *sql.Tx, t berth.Task) (string, error) {
	if t.TitleAsset == "" {
		return "", nil
	}
	a, err := scan(tx.QueryRowContext(ctx, selectTitle, t.TitleAsset, t.UserID), func(a *berth.Asset) []any {
		return []any{&a.Kind, &a.Name, &a.Content}
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	case a.Kind == berth.AssetTitle:
		return string(a.Content), nil
	case a.Name != "" || a.Kind == berth.AssetImage:
		return shorten(a.Name), nil
	default:
		return shorten(string(a.Content)), nil
	}
}

const ellipsis = "…"

// shorten returns the first words of a text in one line, as a name that berth.Name accepts. It ends between characters that readers see,
// such as an emoji of several code points; between words, unless the last one is long.
func shorten(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	text = berth.CleanName(text, len(text))
	if utf8.RuneCountInString(text) <= berth.MaxTaskTitle {
		return text
	}
	end, words, runes := 0, 0, utf8.RuneCountInString(ellipsis)
	for rest, state := text, -1; ; {
		var seen string
		seen, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if seen == " " {
			words = end
		}
		if runes += utf8.RuneCountInString(seen); runes > berth.MaxTaskTitle {
			break
		}
		end += len(seen)
	}
	if words > end/2 {
		end = words
	}
	if !strings.ContainsFunc(text[:end], berth.Visible) { // one character of many marks
		return ""
	}
	return berth.CleanName(text[:end]+ellipsis, berth.MaxTaskTitle)
}

// titleKey returns a title, or a query for titles, without differences of case and width.
func titleKey(title string) string {
	return strings.Map(func(r rune) rune { return fold(unicode.ToUpper(r)) }, title)
}

// titlePattern returns the pattern for titles that contain the words of a query in this order.
func titlePattern(query string) string {
	words := strings.Fields(titleKey(query))
	for i, w := range words {
		words[i] = escapePattern.Replace(w)
	}
	return "%" + strings.Join(words, "%") + "%"
}

var escapePattern = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
