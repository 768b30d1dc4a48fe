package sim

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// topic is what a section of a text, or a property of a schema, is about.
type topic string

const (
	about        topic = "about"
	duties       topic = "duties"
	requirements topic = "requirements"
	wishes       topic = "wishes"
	experience   topic = "experience"
	skills       topic = "skills"
	languages    topic = "languages"
	strengths    topic = "strengths"
	gaps         topic = "gaps"
	changes      topic = "changes"
)

// topics lists the names of headings and properties; the first that matches wins. Up to three words may precede a name.
var topics = func() (out []struct {
	topic topic
	name  *regexp.Regexp
},
) {
	for _, row := range [][2]string{
		{string(wishes), `nice.?to.?haves?|preferred(?: \w+)?|bonus(?: points)?|desirable|加分项|加分条件|优先条件?|优先考虑`},
		{string(requirements), `requirements?|must.?haves?|qualifications?|what you bring|looking for|your profile|required skills|要求|任职资格|必备条件`},
		{string(duties), `responsibilities|duties|tasks|what you(?: wi|.)ll do|职责|工作内容`},
		{"offer", `offer|benefits|perks|compensation|福利|待遇|薪酬|我们提供`},
		{string(gaps), `gaps|missing|open questions|疑问`},
		{string(changes), `changes|改动`},
		{string(about), `about(?: \w+){0,3}|summary|overview|description|objective|简介|概述|描述|总结|评价|个人优势`},
		{string(strengths), `strengths|优势`},
		{"projects", `projects|项目经历|项目经验|项目`},
		{string(experience), `experience|employment history|work history|career|经历|经验`},
		{"education", `education|academic background|教育背景|学历`},
		{string(skills), `skills|skill.?groups|technologies|tech stack|技能|技术栈`},
		{string(languages), `languages|语言|语言能力`},
	} {
		name := regexp.MustCompile(`(?i)^(?:[\pL'’]+ ){0,3}\p{Han}{0,4}(?:` + row[1] + `)$`)
		out = append(out, struct {
			topic topic
			name  *regexp.Regexp
		}{topic(row[0]), name})
	}
	return out
}()

func topicOf(name string) topic {
	for _, t := range topics {
		if t.name.MatchString(name) {
			return t.topic
		}
	}
	return ""
}

// line is one line or sentence of a text, without its bullet, below the heading that precedes it.
type line struct {
	text    string
	heading string
	topic   topic
	bullet  bool
}

var (
	bulletMark  = regexp.MustCompile(`^(?:[•·●○▪■◆\-–—*+]+\s+|[•●○▪■◆]\s*|\d{1,2}[.)、．]\s*|[（(]\d{1,2}[)）]\s*)`)
	sentenceEnd = regexp.MustCompile(`[.!?;]\s+|[。！？；]`)
)

const (
	maxLines     = 2000 // bound the work for one text
	maxLine      = 20_000
	maxQuote     = 600
	longLine     = 200 // characters; longer lines are cut into sentences
	maxHeading   = 40
	maxParagraph = 1500
)

// readLines cuts a posting or résumé into lines. A heading is a line of its own that names a topic. JSON is read as
// headings, "name: value" lines and bullets; notices of the simulator are dropped.
func readLines(text string) []line {
	var out []line
	var at line
	for raw := range strings.Lines(flattenJSON(text)) {
		raw = strings.TrimSpace(strings.ReplaceAll(clip(raw, maxLine), "**", ""))
		for _, n := range notices {
			raw = strings.Trim(strings.ReplaceAll(raw, n, ""), " _")
		}
		name, rest, _ := strings.Cut(strings.Replace(strings.Trim(raw, "#【】 "), "：", ":", 1), ":")
		if t := topicOf(name); t != "" && len([]rune(name)) <= maxHeading {
			at.topic, at.heading = t, name
			raw = strings.TrimSpace(rest)
		}
		body := strings.TrimSpace(strings.TrimLeft(raw, "# "))
		mark := bulletMark.FindString(body)
		at.bullet = mark != "" && len(mark) < len(body)
		if at.bullet {
			body = body[len(mark):]
		}
		if len([]rune(body)) > longLine {
			body = sentenceEnd.ReplaceAllString(body, "$0\n")
		}
		for part := range strings.Lines(body) {
			at.text = strings.TrimRight(strings.TrimSpace(part), "；;")
			if strings.Trim(at.text, "-=_*`~ ") != "" && len(out) < maxLines {
				out = append(out, at)
			}
		}
	}
	return out
}

var jsonLine = regexp.MustCompile(`^(?:"(\w+)": )?("(?:[^"\\]|\\.)*"|-?[\d.eE+]+|true|false|\[)?`)

func flattenJSON(text string) string {
	var v any
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	var raw json.RawMessage
	_ = json.Unmarshal([]byte(text), &raw) // it was valid above
	indented, _ := json.MarshalIndent(raw, "", " ")
	var b strings.Builder
	for row := range strings.Lines(string(indented)) {
		m := jsonLine.FindStringSubmatch(strings.TrimSpace(row))
		value := m[2]
		if s, err := strconv.Unquote(value); err == nil {
			value = strings.Join(strings.Fields(s), " ")
		}
		switch {
		case m[2] == "[" && m[1] != "":
			b.WriteString(m[1] + "\n")
		case m[1] != "" && value != "":
			b.WriteString(m[1] + ": " + value + "\n")
		case value != "" && value != "[":
			b.WriteString("- " + value + "\n")
		}
	}
	return b.String()
}

func texts(ls []line, ts ...topic) []string {
	out := []string{}
	for _, l := range ls {
		if slices.Contains(ts, l.topic) {
			out = append(out, l.text)
		}
	}
	return out
}

var (
	separator   = regexp.MustCompile(`\s*[,;/，；、。]\s*|\s+(?:and|or)\s+|与|和|或|及`)
	fillerStart = regexp.MustCompile(`(?i)^(?:(?:a|an|the|and|or|we|you|our|your|is|are|be|in|of|on|at|to|for|with|have|as|good|strong|solid|clear|` +
		`excellent|proven|deep|basic|knowledge|command|experience|understanding|familiarity|familiar|ability|able|skills?|similar|related|working)\b\s*)+|` +
		`^(?:具备|良好的?|熟悉|熟练|精通|掌握|了解|使用|以上|相关|有)+`)
	fillerZH = regexp.MustCompile(`具备|良好|熟悉|熟练|精通|掌握|了解|使用|以上|相关|经验|能力|精神|学历|负责|架构`)
	wordRun  = regexp.MustCompile(`\p{Han}+|\.?[^\p{Han}\s\pP\pS](?:[^\p{Han}\s\pP\pS]|[.'’][^\p{Han}\s\pP\pS])*[+#]*`)
	years    = regexp.MustCompile(`(?i)(\d{1,2})\s*\+?(?:\s*(?:-|–|to|至|到)\s*\d{1,2})?\s*(?:\+\s*)?(?:years?\b|年)`)
)

// terms cuts a requirement into the things that can be looked for one by one. A line about years is one term.
func terms(text string) []string {
	if yearsIn(text) > 0 {
		return []string{clip(strings.TrimRight(text, ".。"), maxQuote)}
	}
	var out []string
	for _, t := range separator.Split(text, -1) {
		if t = strings.Trim(fillerStart.ReplaceAllString(strings.TrimSpace(t), ""), " .:：()（）"); len(words(t)) > 0 {
			out = append(out, clip(t, maxQuote))
		}
	}
	return out
}

// yearsIn returns the years of experience that a line speaks of, 0 if none.
func yearsIn(text string) int {
	m := years.FindStringSubmatch(text)
	if m == nil || !strings.Contains(strings.ToLower(text), "experience") && !strings.Contains(text, "经验") {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// word is one significant word of a text. A name, such as Kubernetes or C#, is written with a capital letter or a sign.
type word struct {
	key  string
	name bool
}

// words returns the significant words of a text in their order: Latin ones in lower case and without a plural's s, but
// short names as they are written, and pairs of Chinese characters.
func words(text string) []word {
	var out []word
	add := func(w word) {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	for i, w := range wordRun.FindAllString(fillerZH.ReplaceAllString(text, " "), -1) {
		first := []rune(w)[0]
		if isCJK(first) {
			for pair := []rune(w); len(pair) > 1; pair = pair[1:] {
				add(word{key: string(pair[:2])})
			}
			continue
		}
		if fillerStart.FindString(w) == w || len(w) < 2 {
			continue
		}
		key := w
		if len(w) > 3 {
			key = strings.TrimSuffix(strings.ToLower(w), "s")
		} else if !unicode.IsUpper(first) {
			key = strings.ToLower(w)
		}
		add(word{key, i > 0 && unicode.IsUpper(first) || strings.ContainsFunc(w[1:], isSign)})
	}
	return out
}

// overlap returns the share of the wanted words that a line has, 0-1. A line without one of the wanted names has none.
func overlap(want []word, text string) float64 {
	have := map[string]bool{}
	for _, w := range words(text) {
		have[w.key] = true
	}
	shared, names := 0, 0
	for _, w := range want {
		switch {
		case have[w.key]:
			shared++
			if w.name {
				names++
			}
		case w.name:
			return 0
		}
	}
	if names > 0 {
		return max(float64(shared)/float64(len(want)), enough)
	}
	return float64(shared) / float64(max(len(want), 1))
}

const enough = 0.51 // overlap at which a line is a match

// best returns the line with the most overlap, the first of equals, if it is a match.
func best(want []word, lines []line) (found line, ok bool) {
	most := 0.0
	for _, l := range lines {
		if o := overlap(want, l.text); o >= enough && o > most {
			found, most = l, o
		}
	}
	return found, most > 0
}

var nameRun = regexp.MustCompile(`\p{Lu}[\pL\pN.+#]*(?: \p{Lu}[\pL\pN.+#]*)*|\b[a-z]+\p{Lu}[\pL\pN]*`)

// names returns the names in a sentence, neighbours joined: "GitHub Actions". An ordinary word at its start is none.
func names(sentence string) []string {
	out := []string{}
	for _, at := range nameRun.FindAllStringIndex(sentence, -1) {
		name := sentence[at[0]:at[1]]
		if first, rest, _ := strings.Cut(name, " "); at[0] == 0 && !strings.ContainsFunc(first[1:], isSign) {
			name = rest
		}
		if name = strings.Trim(name, " ."); len(name) > 1 && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// isSign reports whether a character behind the first one marks a name.
func isSign(r rune) bool { return unicode.IsUpper(r) || strings.ContainsRune("+#", r) }

// clip returns at most n characters of s.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[:n]))
	}
	return s
}

func isCJK(r rune) bool { return unicode.Is(unicode.Han, r) }
