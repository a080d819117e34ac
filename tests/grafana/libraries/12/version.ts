// What differs between versions of Grafana: the table, what is configured of it (the rest is dropped), and how a
// transformation is registered.
export { TableNG as Table } from '@grafana/ui/unstable';
export const registered = (transformer) => transformer;
export const ofTables = ['align', 'cellOptions', 'filterable', 'hideFrom.viz', 'inspect', 'minWidth', 'width', 'wrapText'];
// Whether panels are drawn, or only read.
export const drawn = true;
