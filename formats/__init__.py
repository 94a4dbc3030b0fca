"""Pure schemas: challenge, script, record, event, diff. Importable by every room; imports none."""
