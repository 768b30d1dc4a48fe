/** Reports whether a text has the form of a link's secret (crypto/rand.Text of the API). Any other one is refused without a request. */
export const isLink = (secret: string) => /^[A-Z2-7]{26,}$/.test(secret);
