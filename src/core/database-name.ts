/** The names that a database of people may have, decoded; protocol.md 2.1. Apart from ids.ts, for what runs in a page. */
export const DATABASE_NAME = /^[a-z][a-z0-9_$()+/-]*$/
