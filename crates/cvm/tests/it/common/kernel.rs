//! A bzImage with the headers of a kernel.

/// Returns an image with 12,400 bytes of code after one sector of setup code.
pub fn synthetic() -> Vec<u8> {
    let code = 12_400_u32;
    let mut image = vec![0; 1024];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    // setup_sects, syssize, boot_flag and the jump over the header.
    put(0x1f1, &[1]);
    put(0x1f4, &(code / 16).to_le_bytes());
    put(0x1fe, &[0x55, 0xaa, 0xeb, 0x6a]);
    put(0x202, b"HdrS");
    // Version, initrd_addr_max, xloadflags, cmdline_size.
    put(0x206, &0x20f_u16.to_le_bytes());
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    put(0x236, &3_u16.to_le_bytes());
    put(0x238, &2047_u32.to_le_bytes());
    // pref_address and init_size.
    put(0x258, &0x100_0000_u64.to_le_bytes());
    put(0x260, &0x40_0000_u32.to_le_bytes());
    image.extend((0..code + 16).map(|byte| (byte % 251) as u8));
    image
}
