/** Origins of the apps whose pages call the server: Obsidian's, on computers and on phones; clients.md R12. */
export const APP_ORIGINS = ['app://obsidian.md', 'capacitor://localhost', 'http://localhost'] as const
