/** Outlines on a grid of 24, drawn with the colour of the text. */
const PATHS = {
  overview: 'M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-4H4zM14 8h6V4h-6z',
  databases:
    'M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zM4 6v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3',
  devices:
    'M4 17V6a1 1 0 0 1 1-1h13v4M2 20h10M15 11h5a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1h-5a1 1 0 0 1-1-1v-8a1 1 0 0 1 1-1z',
  replication: 'M4 9h13l-3-3M20 15H7l3 3',
  doctor: 'M6 3v5a4 4 0 0 0 8 0V3M10 12v4a4 4 0 0 0 8 0v-3M18 13a2 2 0 1 0 0-4 2 2 0 0 0 0 4z',
  hosted: 'M3 20v-9l5-4 5 4v9zM13 20h8V8l-5-4-3 2.4M7 20v-5h2v5M17 12v.01M17 16v.01',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  menu: 'M4 6h16M4 12h16M4 18h16',
  close: 'M6 6l12 12M18 6L6 18',
  back: 'M15 5l-7 7 7 7',
  next: 'M9 5l7 7-7 7',
  down: 'M5 9l7 7 7-7',
  plus: 'M12 5v14M5 12h14',
  search: 'M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5L21 21',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  check: 'M5 12.5l4.5 4.5L19 7',
  warning: 'M12 4L2.5 20h19zM12 10v4M12 17v.01',
  error: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 8v5M12 16v.01',
  info: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8v.01',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5',
  edit: 'M4 20l1-5L16 4l4 4L9 19zM13 7l4 4',
  reload: 'M20 11a8 8 0 1 0-.7 5M20 5v6h-6',
  restore: 'M4 11a8 8 0 1 1 .7 5M4 5v6h6M12 8v4l3 2',
  eye: 'M2 12s3.5-7 10-7 10 7 10 7-3.5 7-10 7-10-7-10-7zM12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6z',
  download: 'M12 4v11l-4-4M12 15l4-4M5 20h14',
  upload: 'M12 16V5L8 9M12 5l4 4M5 20h14',
  play: 'M7 4l13 8-13 8z',
  pause: 'M8 5v14M16 5v14',
  user: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4 3.5-6 8-6s8 2 8 6',
  leave: 'M14 4h5a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1h-5M4 12h11M11 8l4 4-4 4',
  external: 'M14 4h6v6M20 4L11 13M18 14v6H4V6h6',
  file: 'M6 3h8l5 5v13H6zM14 3v5h5',
} as const

export type IconName = keyof typeof PATHS

/** An icon beside a text, or in a button with a label of its own: screen readers skip it. */
export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  )
}
