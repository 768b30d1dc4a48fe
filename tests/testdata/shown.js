// Returns what is wrong with how names are shown: those from right to left that are not isolated from the text around them, and elements
// that a name has created.
(names) => {
	const found = [...document.querySelectorAll('main :is(img:not([src^="blob:"]), script, iframe)')].map((e) => `a name is markup: ${e.outerHTML}`);
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let node = walker.nextNode(); node; node = walker.nextNode()) {
		if (!/[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Thaana}\p{Script=Adlam}]/u.test(node.data)) continue;
		if (node.parentElement.matches('[aria-hidden=true]')) continue; // the initial in place of a picture
		const all = node.parentElement.closest('bdi, [dir=auto]')?.textContent;
		const apart = node.data.replace(/\u2068[^\u2068]*?\u2069/g, ''); // in a sentence
		if (!names.includes(all) && /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Thaana}\p{Script=Adlam}]/u.test(apart)) {
			found.push(`not isolated: ${JSON.stringify(node.data)} in ${node.parentElement.outerHTML.slice(0, 200)}`);
		}
	}
	return found;
}
