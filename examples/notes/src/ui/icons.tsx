const PATHS = {
  notes: 'M5 4h10l4 4v12H5zM14 4v5h5M8 13h8M8 16.5h6',
  book: 'M5 5a2 2 0 0 1 2-2h12v18H7a2 2 0 0 1-2-2zM5 19a2 2 0 0 1 2-2h12',
  tag: 'M4 4h7.5L20 12.5 12.5 20 4 11.5zM8 8h.01',
  conflict:
    'M9 5a2 2 0 1 1-4 0 2 2 0 0 1 4 0zM9 19a2 2 0 1 1-4 0 2 2 0 0 1 4 0zM19 7a2 2 0 1 1-4 0 2 2 0 0 1 4 0zM7 7v10M17 9c0 5-10 3-10 8',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  sync: 'M4 12a8 8 0 0 1 13.7-5.6L20 9M20 4v5h-5M20 12a8 8 0 0 1-13.7 5.6L4 15M4 20v-5h5',
  log: 'M5 5h14v14H5zM8 9h8M8 12h8M8 15h5',
  info: 'M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 11v5M12 8h.01',
  back: 'M15 5l-7 7 7 7',
  next: 'M9 5l7 7-7 7',
  menu: 'M4 7h16M4 12h16M4 17h16',
  add: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  picture: 'M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9h.01',
  bin: 'M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  more: 'M6 12a.8.8 0 1 1-1.6 0 .8.8 0 0 1 1.6 0zM12.8 12a.8.8 0 1 1-1.6 0 .8.8 0 0 1 1.6 0zM19.6 12a.8.8 0 1 1-1.6 0 .8.8 0 0 1 1.6 0z',
  help: 'M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM9.7 9.5a2.4 2.4 0 1 1 3.4 2.2c-.8.4-1.1.8-1.1 1.6M12 16h.01',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l4 4',
} as const

export type IconName = keyof typeof PATHS

/** An icon beside a text with the same meaning, so it is hidden from screen readers. */
export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  )
}
