// Makes the page receive other names: those of the given fields begin with the prefix, which the addresses of its requests do not have.
(prefix, fields) => {
	window.fetched ??= window.fetch;
	const renamed = (value, key) => {
		if (typeof value === 'string') return value && fields.includes(key) ? prefix + value : value;
		if (Array.isArray(value)) return value.map((v) => renamed(v, key));
		if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, renamed(v, k)]));
		return value;
	};
	window.fetch = async (url, o) => {
		const query = new URLSearchParams({ p: prefix }).toString().slice(2);
		const res = await window.fetched(String(url).replaceAll(encodeURIComponent(prefix), '').replaceAll(query, ''), o);
		if (!res.ok || !res.headers.get('Content-Type')?.includes('json')) return res;
		return Response.json(renamed(await res.json(), ''), { headers: res.headers });
	};
}
