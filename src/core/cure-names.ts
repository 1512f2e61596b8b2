/** The steps that free space on the disk of the data folder, first those that give up least; docs/operating.md, Full disks. */
export const CURES = [
  'surplus-backups',
  'compaction',
  'upgrade-copies',
  'replaced',
  'older-backups',
  'versions',
] as const

export type CureName = (typeof CURES)[number]
