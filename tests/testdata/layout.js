// Returns what is wrong with the layout of the page as it is shown: text columns that are too narrow, words that are broken, texts that
// are cut off, overlap, or leave their box or the window.
(() => {
	const narrow = 20; // Latin characters; a Chinese one is as wide as two
	const scrolls = 'pre, textarea, .side ul, .prose .table, .written'; // parts that scroll on purpose
	const root = document.documentElement;
	const found = new Set();
	const name = (e) => e.tagName.toLowerCase() + [...e.classList].map((c) => '.' + c).join('');
	const path = (e) => {
		const all = [];
		for (; e && e !== document.body && all.length < 4; e = e.parentElement) all.unshift(name(e));
		return all.join(' > ');
	};
	const report = (what, e, text) => found.add(`${what}: ${path(e)}: ${text.trim().replace(/\s+/g, ' ').slice(0, 60)}`);
	const unseen = [...document.querySelectorAll('.sr, .skip, thead')].filter((e) => getComputedStyle(e).position === 'absolute'); // for screen readers
	const shown = (e) => e.checkVisibility({ opacityProperty: false, visibilityProperty: true }) && !e.closest('option') && !unseen.some((u) => u.contains(e));
	const open = document.querySelector('dialog[open]');
	const measure = document.createElement('canvas').getContext('2d');
	const styles = new Map();
	const styleOf = (e) => styles.get(e) ?? styles.set(e, getComputedStyle(e)).get(e);
	const cell = (e) => {
		const s = styleOf(e);
		measure.font = `${s.fontStyle} ${s.fontWeight} ${s.fontSize} ${s.fontFamily}`;
		return measure.measureText('the quick brown fox jumps over').width / 30;
	};
	const titled = (e) => e.closest('[title]') ?? e.querySelector('[title]');
	const cells = (text) => [...text].reduce((n, c) => n + (/[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]/.test(c) ? 2 : 1), 0);
	const blockOf = (e) => {
		while (/^(inline|contents)$/.test(styleOf(e).display) && e !== document.body) e = e.parentElement;
		return e;
	};
	const inner = (e) => {
		const s = styleOf(e);
		const r = e.getBoundingClientRect();
		return r.width - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight) - parseFloat(s.borderLeftWidth) - parseFloat(s.borderRightWidth);
	};

	if (root.scrollWidth > root.clientWidth) found.add(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth}`);

	// The text of each block, and where its lines are.
	const blocks = new Map();
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	const range = document.createRange();
	for (let node = walker.nextNode(); node; node = walker.nextNode()) {
		if (!node.data.trim() || !shown(node.parentElement) || (open && !open.contains(node))) continue;
		const block = blockOf(node.parentElement);
		const b = blocks.get(block) ?? { text: '', rects: [] };
		blocks.set(block, b);
		b.text += node.data;
		range.selectNodeContents(node);
		b.rects.push(...range.getClientRects());
		for (const w of node.data.matchAll(/(?<=^|\s)[A-Za-z]{2,20}(?=$|[\s.,:;)])/g)) {
			range.setStart(node, w.index);
			range.setEnd(node, w.index + w[0].length);
			if (new Set([...range.getClientRects()].filter((r) => r.width > 0).map((r) => Math.round(r.top))).size > 1) report('a word is broken', block, w[0] + ' in ' + b.text);
		}
	}
	const lines = [];
	for (const [block, b] of blocks) {
		const rects = b.rects.filter((r) => r.width > 0.5 && r.height > 0.5);
		if (rects.length === 0) {
			report('a text has no size', block, b.text);
			continue;
		}
		const tops = [...new Set(rects.map((r) => Math.round(r.top)))].sort((x, y) => x - y);
		const height = Math.max(...rects.map((r) => r.height));
		const count = tops.filter((t, i) => i === 0 || t - tops[i - 1] > height / 2).length;
		const text = b.text.trim().replace(/\s+/g, ' ');
		const room = Math.min(narrow * cell(block), 0.8 * root.clientWidth); // a headline on a phone is large
		if (count > 1 && cells(text) >= narrow && inner(block) < room) {
			report(`a column of ${Math.round(inner(block))} px`, block, text);
		}
		const scroller = block.closest(scrolls);
		const box = block.getBoundingClientRect();
		let clip = block;
		while (clip && styleOf(clip).overflowX === 'visible') clip = clip.parentElement;
		if (clip === document.body || clip === root) clip = null;
		const c = clip?.getBoundingClientRect();
		for (const r of rects) {
			if (scroller) continue;
			if (c && styleOf(clip).overflowY === 'hidden' && r.top > c.bottom - 2) { // a line that is not shown
				if (!titled(clip)) report('a text is cut off', block, text);
				continue;
			}
			if (c) {
				if ((r.right > c.right + 1 || r.left < c.left - 1) && !(styleOf(clip).textOverflow === 'ellipsis' && titled(clip))) report('a text is cut off', block, text);
			} else if (r.right > root.clientWidth + 0.5 || r.left < -0.5) report('a text leaves the window', block, text);
			else if (r.right > box.right + 1 || r.left < box.left - 1) report('a text leaves its box', block, text);
			const fixed = block.closest('.uplot, dialog');
			const s = styleOf(block);
			if (!fixed && s.position !== 'absolute') lines.push({ block, text, r: c ? { left: Math.max(r.left, c.left), right: Math.min(r.right, c.right), top: r.top, bottom: r.bottom, height: r.height } : r });
		}
	}
	for (let i = 0; i < lines.length; i++) {
		for (let k = i + 1; k < lines.length; k++) {
			const [a, b] = [lines[i], lines[k]];
			if (a.block === b.block || a.block.contains(b.block) || b.block.contains(a.block)) continue;
			const wide = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
			const high = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
			if (wide > 2 && high > Math.min(a.r.height, b.r.height) * 0.4) report('texts overlap', a.block, `${a.text.slice(0, 25)} / ${b.text.slice(0, 25)}`);
		}
	}

	// Boxes whose content is wider than they are.
	for (const e of document.body.querySelectorAll('*')) {
		if (e.scrollWidth <= e.clientWidth + 1 || e.clientWidth === 0 || !shown(e) || (open && !open.contains(e)) || e.closest(scrolls)) continue;
		const s = styleOf(e);
		if (s.overflowX === 'visible' || /^(input|select)$/i.test(e.tagName)) continue;
		if (s.textOverflow === 'ellipsis' && titled(e)) continue;
		report('a box is narrower than its content', e, e.textContent);
	}
	return [...found].sort();
})();
